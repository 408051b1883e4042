package main

import (
	"github.com/spf13/cobra"

	"github.com/livefleet/handover/helper/internal/ownnet"
	"github.com/livefleet/handover/helper/internal/tree"
)

// What a check asks before anything is touched: the same code that a move would fail in.

func (a internalCommands) flagsIn() *cobra.Command {
	return &cobra.Command{Use: "flags-in PATH…", Short: "Tell which flags of files (chattr) a copy of these would have to carry", Args: between(1, -1), RunE: func(_ *cobra.Command, args []string) error {
		found := map[string][]tree.FoundFlag{}
		for _, path := range args {
			flags, err := tree.FlagsIn(path)
			if err != nil {
				return err
			}
			found[path] = flags
		}
		return a.print(map[string]any{"found": found})
	}}
}

func (a internalCommands) flagsMissing() *cobra.Command {
	return &cobra.Command{Use: "flags-missing FOLDER…", Short: "Tell which of these flags the file system of a folder cannot have", Args: between(1, -1), RunE: func(_ *cobra.Command, args []string) error {
		missing := map[string][]string{}
		for _, folder := range args {
			flags, err := tree.FlagsMissing(folder)
			if err != nil {
				return err
			}
			missing[folder] = flags
		}
		return a.print(map[string]any{"missing": missing})
	}}
}

func (a internalCommands) ownTables() *cobra.Command {
	return &cobra.Command{Use: "own-tables NAMESPACE", Short: "Tell the tables of nftables in a network namespace", Args: between(1, 1), RunE: func(_ *cobra.Command, args []string) error {
		tables, err := ownnet.TablesIn(args[0])
		if err != nil {
			return err
		}
		return a.print(map[string]any{"tables": tables})
	}}
}
