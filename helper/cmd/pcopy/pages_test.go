package main

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

var (
	block  = regexp.MustCompile("(?ms)^ *```sh\n(.*?)^ *```")
	inline = regexp.MustCompile("`(pcopy [^`\n]+)`")
	// A word of a command line: bare, or with quotes around a part of it.
	word = regexp.MustCompile(`(?:'[^']*'|"[^"]*"|[^\s'"])+`)
)

// TestThePagesCallCommandsThatThereAre parses each call of pcopy in the documentation as
// the program does: its words, its flags, and in a block the number of its arguments.
func TestThePagesCallCommandsThatThereAre(t *testing.T) {
	calls := 0
	for _, path := range markdown(t, "../../..") {
		raw, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range block.FindAllStringSubmatch(string(raw), -1) {
			for _, call := range callsIn(found[1]) {
				calls++
				if err := parse(call, true); err != nil {
					t.Errorf("%s: %s: %v", path, strings.Join(call, " "), err)
				}
			}
		}
		for _, found := range inline.FindAllStringSubmatch(string(raw), -1) {
			if err := parse(word.FindAllString(found[1], -1), false); err != nil {
				t.Errorf("%s: %s: %v", path, found[1], err)
			}
		}
	}
	if calls < 20 {
		t.Errorf("only %d calls were found in the pages", calls)
	}
}

// markdown are the pages of the tree; what tools keep in it is left out.
func markdown(t *testing.T, root string) (found []string) {
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case entry.IsDir() && path != root && (strings.HasPrefix(entry.Name(), ".") || entry.Name() == "dist" || entry.Name() == "output"):
			return fs.SkipDir
		case filepath.Ext(path) == ".md":
			found = append(found, path)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// callsIn are the calls of pcopy in a block of commands, each as its words.
func callsIn(commands string) (calls [][]string) {
	for line := range strings.Lines(strings.ReplaceAll(commands, "\\\n", " ")) {
		line, _, _ = strings.Cut(line, " #")
		for _, part := range strings.Split(line, "|") {
			if words := word.FindAllString(part, -1); len(words) > 1 && words[0] == "pcopy" {
				calls = append(calls, words)
			}
		}
	}
	return calls
}

// parse is what the program does with a call before it begins. One that stands in a
// sentence may leave its arguments out.
func parse(call []string, inBlock bool) error {
	root := (&app{}).root()
	c, given, err := root.Find(call[1:])
	if err != nil {
		return err
	}
	if err := c.ParseFlags(given); err != nil {
		return err
	}
	if !inBlock && !c.HasSubCommands() {
		return nil
	}
	if c.Hidden {
		return usageError("this word is for programs alone, or one of earlier")
	}
	if err := c.ValidateRequiredFlags(); err != nil {
		return err
	}
	return c.ValidateArgs(c.Flags().Args())
}
