//go:build !man

package main

import "github.com/spf13/cobra"

// building are the commands that only the build of the helper needs: none in the installed program.
func building() []*cobra.Command { return nil }
