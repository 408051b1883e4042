//go:build man

package main

import (
	"github.com/spf13/cobra"
	"github.com/spf13/cobra/doc"
)

// building are the commands that only the build of the helper needs. The manual is written then, from the commands that the help is made of: the
// code for it would cost each start of the installed program half a millisecond, and CRIU's hooks are started in the pause.
func building() []*cobra.Command {
	return []*cobra.Command{{Use: "man DIR", Short: "Write the man pages", Args: between(1, 1), RunE: func(c *cobra.Command, args []string) error {
		root := c.Root()
		root.DisableAutoGenTag = true
		return doc.GenManTree(root, &doc.GenManHeader{Title: "PCOPY", Section: "1", Source: "pcopy " + version, Manual: "Handover"}, args[0])
	}}}
}
