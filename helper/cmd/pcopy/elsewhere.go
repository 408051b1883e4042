package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/livefleet/handover/helper/internal/store"
	"github.com/livefleet/handover/helper/internal/store/elsewhere"
	"github.com/livefleet/handover/helper/internal/transport"
)

// there has a command about a store on another host (HOST:/FOLDER) run by the pcopy of
// that host: it holds the store, and its files do not travel.
func (a snapshotCommands) there(c *cobra.Command) *cobra.Command {
	here := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		p, ok := elsewhere.Parse(args[0])
		if !ok {
			return here(c, args)
		}
		words := []string{"snapshot", c.Name()}
		c.Flags().Visit(func(f *pflag.Flag) { words = append(words, "--"+f.Name+"="+f.Value.String()) })
		return a.runThere(c.Context(), p, append(append(words, "--", p.Dir), args[1:]...))
	}
	return c
}

func (a snapshotCommands) runThere(ctx context.Context, p elsewhere.Place, words []string) error {
	argv := p.Command(words...)
	var said bytes.Buffer
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stdout, cmd.Stderr = a.out, &said
	err := cmd.Run()
	if err == nil {
		return nil
	}
	lines := strings.Split(strings.TrimSpace(said.String()), "\n")
	if last := strings.TrimPrefix(lines[len(lines)-1], "pcopy: "); last != "" {
		return fmt.Errorf("%s: %s", p.Host, last)
	}
	return fmt.Errorf("%s: %w", p, err)
}

// here refuses a store on another host, for work that needs its files.
func here(store string) error {
	if p, ok := elsewhere.Parse(store); ok {
		return fmt.Errorf("%s is on another host: bring the snapshot here first (`pcopy snapshot copy %s SNAPSHOT NEWSTORE`), and name that store", p, p)
	}
	return nil
}

// index reads the index of a store, here or on another host.
func index(word string) (*store.Index, error) {
	if p, ok := elsewhere.Parse(word); ok {
		return elsewhere.Peek(p)
	}
	return store.Peek(word)
}

func (a snapshotCommands) snapshotCopy() *cobra.Command {
	return &cobra.Command{Use: "copy STORE SNAPSHOT NEWSTORE", Short: "Bring one snapshot into a new store on this host, also from another host (HOST:/FOLDER)", Args: between(3, 3), RunE: func(_ *cobra.Command, args []string) error {
		if err := here(args[2]); err != nil {
			return err
		}
		if p, ok := elsewhere.Parse(args[0]); ok {
			return elsewhere.Copy(p, args[1], args[2])
		}
		return elsewhere.CopyHere(args[0], args[1], args[2])
	}}
}

func (a snapshotCommands) snapshotJoin() *cobra.Command {
	var how store.Joining
	c := &cobra.Command{Use: "join STORE OTHER [SNAPSHOT…]", Short: "Bring the snapshots of a store, also of another host's (HOST:/FOLDER), that another one on this host lacks", Args: between(2, -1), RunE: func(_ *cobra.Command, args []string) error {
		if err := here(args[1]); err != nil {
			return err
		}
		how.Points = args[2:]
		join := elsewhere.JoinHere
		if p, ok := elsewhere.Parse(args[0]); ok {
			join = func(_, dir string, how store.Joining) (*store.Joined, error) { return elsewhere.Join(p, dir, how) }
		}
		came, err := join(args[0], args[1], how)
		if err != nil {
			return err
		}
		return a.print(came)
	}}
	c.Long = c.Short + ".\n\nWithout SNAPSHOT all come. Both stores are whole at each moment, and what came before a kill stays. OTHER is made if it is not there."
	c.Flags().BoolVar(&how.Current, "current", false, "the workload's disks come to this host, too: the current snapshot is that of STORE")
	c.Flags().BoolVar(&how.DryRun, "dry-run", false, "only tell what would come")
	return c
}

func (a snapshotCommands) snapshotStores() *cobra.Command {
	return &cobra.Command{Use: "stores FOLDER", Short: "List the stores in a folder", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		stores := []string{}
		if err := store.Mounted(args[0]); err != nil {
			return err
		}
		entries, err := os.ReadDir(args[0])
		missing := errors.Is(err, os.ErrNotExist)
		if err != nil && !missing {
			return err
		}
		for _, e := range entries {
			if is, err := store.Is(filepath.Join(args[0], e.Name())); err != nil {
				return err
			} else if is {
				stores = append(stores, e.Name())
			}
		}
		return a.print(map[string]any{"stores": stores, "missing": missing})
	}}
}

// exportThere writes a file of a store on another host to a new file on this one.
func exportThere(p elsewhere.Place, point, name, out string) error {
	b, err := elsewhere.ReadFile(p, point, name)
	if err != nil {
		return err
	}
	to, err := os.OpenFile(out, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	_, err = to.Write(b)
	return errors.Join(err, to.Sync(), to.Close())
}

// serveStore is the side that has the store, of a pcopy on another host.
func (a internalCommands) serveStore() *cobra.Command {
	return &cobra.Command{Use: elsewhere.ServeWord, Short: "Do with a store what a pcopy at the other end of the standard streams asks for", Args: between(0, 0), RunE: func(*cobra.Command, []string) error {
		rw, err := transport.Stdio()
		if err != nil {
			return err
		}
		return elsewhere.Serve(rw)
	}}
}
