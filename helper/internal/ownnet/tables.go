package ownnet

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/google/nftables"

	"github.com/livefleet/handover/helper/internal/network"
)

// Table is a table of nftables' that a program made in the namespace.
type Table struct {
	Family  string `json:"family"`
	Name    string `json:"name"`
	Script  string `json:"script"`  // as nft lists and reads it, with its counters
	Without string `json:"without"` // the same without them
}

func (t Table) String() string { return "the nftables table " + t.Family + " " + t.Name }

// comesAndGoes is a table of a move's own: the helper's silence, and CRIU's lock, which
// bears the ID of the dump from CRIU 4.2 on.
func comesAndGoes(name string) bool {
	return name == "handover" || name == "CRIU" || strings.HasPrefix(name, "CRIU-")
}

// managed is said of a table that iptables keeps: nft cannot make it again.
const managed = "managed by iptables"

// resolver is the address at which Docker answers to its containers' questions for names.
// On each host it leads there from inside, by a table that iptables keeps, to a port of its
// own; and it makes that again where it brings the container up.
const resolver = "127.0.0.11"

// ofResolver says whether every rule of a table is Docker's for that.
func ofResolver(script string) bool {
	found := false
	for line := range strings.Lines(script) {
		line = strings.TrimSpace(line)
		first, _, _ := strings.Cut(line, " ")
		switch first {
		case "", "#", "table", "chain", "type", "}":
			continue
		}
		toDocker := strings.Contains(line, " jump DOCKER_") || strings.Contains(line, " dnat to "+resolver+":") || strings.HasSuffix(line, " snat to :53")
		if !toDocker || !strings.HasPrefix(line, "ip daddr "+resolver+" ") && !strings.HasPrefix(line, "ip saddr "+resolver+" ") {
			return false
		}
		found = true
	}
	return found
}

var families = map[nftables.TableFamily]string{
	nftables.TableFamilyINet: "inet", nftables.TableFamilyIPv4: "ip", nftables.TableFamilyIPv6: "ip6", nftables.TableFamilyARP: "arp",
	nftables.TableFamilyNetdev: "netdev", nftables.TableFamilyBridge: "bridge",
}

// names are those of the tables of the thread's namespace, of which the kernel tells in
// no time.
func names() (found []Table, err error) {
	c, err := nftables.New()
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	all, err := c.ListTables()
	if err != nil {
		return nil, fmt.Errorf("nftables: %w", err)
	}
	for _, t := range all {
		if !comesAndGoes(t.Name) {
			found = append(found, Table{Family: families[t.Family], Name: t.Name})
		}
	}
	slices.SortFunc(found, func(a, b Table) int { return cmp.Or(cmp.Compare(a.Family, b.Family), cmp.Compare(a.Name, b.Name)) })
	return found, nil
}

// TablesIn are the tables of the namespace at path, in words that nft would use. The
// kernel tells them, also where there is no nft.
func TablesIn(path string) ([]string, error) {
	found := []string{}
	err := network.Inside(path, func() error {
		all, err := names()
		for _, t := range all {
			found = append(found, t.Family+" "+t.Name)
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("ownnet: %w", err)
	}
	return found, nil
}

// tables are those of the thread's namespace, with their content; without those that
// cannot be carried, if some may be left out.
func tables(some bool) (found []Table, err error) {
	all, err := names()
	if err != nil {
		return nil, err
	}
	for _, one := range all {
		var warned string
		if one.Script, warned, err = nft("", "list", "table", one.Family, one.Name); err != nil {
			return nil, err
		}
		if strings.Contains(one.Script+warned, managed) {
			if some || ofResolver(one.Script) {
				continue
			}
			return nil, fmt.Errorf("%s was made by iptables, whose rules are not carried: make them with nft, or move the workload offline", one)
		}
		if one.Without, _, err = nft("", "--stateless", "list", "table", one.Family, one.Name); err != nil {
			return nil, err
		}
		found = append(found, one)
	}
	return found, nil
}

// applyTables makes the tables of the thread's namespace like these, and returns those that it has
// made again.
func applyTables(want []Table) (changed []string, err error) {
	here, err := tables(false)
	if err != nil {
		return nil, err
	}
	var script strings.Builder
	for _, t := range here {
		if !slices.ContainsFunc(want, func(w Table) bool { return w.named(t) }) {
			fmt.Fprintf(&script, "delete table %s %s\n", t.Family, t.Name)
			changed = append(changed, "without "+t.String())
		}
	}
	for _, w := range want {
		if slices.ContainsFunc(here, w.same) {
			continue
		}
		// In one transaction: there is no moment without it, or with half of it.
		fmt.Fprintf(&script, "add table %s %s\ndelete table %s %s\n%s\n", w.Family, w.Name, w.Family, w.Name, w.Script)
		changed = append(changed, w.String())
	}
	if script.Len() == 0 {
		return nil, nil
	}
	if _, _, err := nft(script.String(), "--file", "-"); err != nil {
		return changed, err
	}
	if here, err = tables(false); err != nil {
		return changed, err
	}
	for _, w := range want {
		if !slices.ContainsFunc(here, w.same) {
			return changed, fmt.Errorf("%s does not become here as it is on the source: install the same nftables on both hosts, or move the workload offline", w)
		}
	}
	return changed, nil
}

func (t Table) named(o Table) bool { return t.Family == o.Family && t.Name == o.Name }

func (t Table) same(o Table) bool {
	return t.named(o) && t.Without == o.Without
}

func nft(script string, words ...string) (out, warned string, err error) {
	command := exec.Command("nft", words...)
	command.Stdin = strings.NewReader(script)
	var said, answer bytes.Buffer
	command.Stdout, command.Stderr = &answer, &said
	err = command.Run()
	if errors.Is(err, exec.ErrNotFound) {
		return "", "", errors.New("the workload has rules of nftables, and this host has no program nft: install the package nftables")
	} else if err != nil {
		first, _, _ := strings.Cut(strings.TrimSpace(said.String()), "\n")
		return "", "", fmt.Errorf("nft %s: %w: %s", strings.Join(words, " "), err, first)
	}
	return answer.String(), said.String(), nil
}
