package main

import (
	"bytes"
	"context"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// each calls do for every command below c.
func each(c *cobra.Command, do func(*cobra.Command)) {
	for _, below := range c.Commands() {
		do(below)
		each(below, do)
	}
}

func TestEveryCommandAndFlagHasItsHelp(t *testing.T) {
	each((&app{}).root(), func(c *cobra.Command) {
		if c.Short == "" && !c.Hidden {
			t.Errorf("%s has no help", c.CommandPath())
		}
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Usage == "" {
				t.Errorf("%s --%s has no help", c.CommandPath(), f.Name)
			}
		})
	})
}

func TestEveryPublicCommandHasAnExample(t *testing.T) {
	seen := 0
	each((&app{}).root(), func(c *cobra.Command) {
		if !public(c) {
			return
		}
		seen++
		_, call, found := strings.Cut(c.Example, c.CommandPath())
		if !found {
			t.Errorf("%s: its example does not call it: %q", c.CommandPath(), c.Example)
			return
		}
		call, _, _ = strings.Cut(call, "|")
		given := strings.Fields(call)
		if c.DisableFlagParsing {
			return
		}
		if err := c.ParseFlags(given); err != nil {
			t.Errorf("%s: its example %q: %v", c.CommandPath(), c.Example, err)
		} else if err := c.ValidateArgs(c.Flags().Args()); err != nil {
			t.Errorf("%s: its example %q: %v", c.CommandPath(), c.Example, err)
		}
	})
	if seen < len(examples) {
		t.Errorf("%d commands were looked at, and there are %d examples", seen, len(examples))
	}
}

// public is of a command that people call.
func public(c *cobra.Command) bool {
	for above := c; above != nil; above = above.Parent() {
		if above.Hidden {
			return false
		}
	}
	return !c.HasSubCommands()
}

// A flag's former name still sets it.
func TestFormerFlagsAnswer(t *testing.T) {
	c, _, err := (&app{}).root().Find([]string{"cache", "hold"}) // its former name
	if err != nil {
		t.Fatal(err)
	}
	if err := c.ParseFlags([]string{"--ready-within=7"}); err != nil {
		t.Fatal(err)
	}
	if value, err := c.Flags().GetFloat64("ready-within-seconds"); err != nil || value != 7 {
		t.Errorf("%v, %v", value, err)
	}
}

func TestACallThatCannotBeUnderstoodIsNamed(t *testing.T) {
	for _, c := range []struct {
		words []string
		says  string
	}{
		{[]string{"sesion", "show"}, "there is no command \"sesion\": did you mean `pcopy session`?"},
		{[]string{"session", "shwo"}, "there is no command \"session shwo\": did you mean `pcopy session show`?"},
		{[]string{"session", "show"}, "0 words were given where 1 are needed: usage: pcopy session show DIR"},
		{[]string{"session", "show", "--root", "x", "y"}, "unknown flag: --root: `pcopy session show --help` shows its flags"},
		{[]string{"session", "wait", "x"}, "--until is missing"},
		{[]string{"session", "abort", "x", "--timeout", "0"}, "--timeout 0: a number of seconds above 0"},
		{[]string{"session", "recover"}, "name a session's folder, or --all"},
		{[]string{"session", "send"}, "name the session's folder once"},
		{[]string{"send", "--session", "a", "b"}, "name the session's folder once"},
		{[]string{"track", "swap", "x"}, "--bitmap is missing"},
	} {
		err := execute(context.Background(), io.Discard, c.words)
		if err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%q says %v\n  and should say %q", c.words, err, c.says)
			continue
		}
		if status(err) != 2 {
			t.Errorf("%q ends with status %d", c.words, status(err))
		}
	}
}

// Old ploop's callers look at the old statuses.
func TestWordsAnOldPeerGetsWrongEndAsTheyDidThere(t *testing.T) {
	for _, words := range [][]string{
		{"copy", "-s"}, {"copy", "-x", "1"}, {"ploop", "send", "extra", "-s", "x"}, {"receive", "--dialect", "ploop-1.12"},
		{"send", "--dialect", "ploop-1.12", "--timeout", "0", "-s", "/dev/null"},
	} {
		if err := execute(context.Background(), io.Discard, words); err == nil || status(err) < 4 {
			t.Errorf("%q: %v", words, err)
		}
	}
}

// The words of version 0.1 lead to the same commands.
func TestFormerWordsAnswer(t *testing.T) {
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ former, now []string }{
		{[]string{"digest", path}, []string{"image", "digest", path}},
		{[]string{"--json", "version"}, []string{"version", "--json"}},
	} {
		var before, after bytes.Buffer
		if err := execute(context.Background(), &before, c.former); err != nil {
			t.Errorf("%q: %v", c.former, err)
		}
		if err := execute(context.Background(), &after, c.now); err != nil {
			t.Errorf("%q: %v", c.now, err)
		}
		if before.String() != after.String() || before.Len() == 0 {
			t.Errorf("%q answers %q, and %q answers %q", c.former, &before, c.now, &after)
		}
	}
	root := (&app{}).root()
	for _, word := range []string{"send", "receive", "stream", "identity", "copy", "bitmap", "probe", "digest", "fdatasync", "pages", "hold", "bluefs",
		"criu-hook", "oci-hook", "criu-hold", "netavark", "run-on-behind", "lift-behind", "run-way"} {
		if c, _, err := root.Find([]string{word}); err != nil || c == root {
			t.Errorf("%s: %v", word, err)
		}
	}
}

func TestAnswersAreReadableOnATerminalAndJSONElsewhere(t *testing.T) {
	value := []struct {
		ID      string  `json:"id"`
		Running bool    `json:"running"`
		Error   *string `json:"error"`
	}{{"shop", true, nil}}
	for _, c := range []struct {
		json bool
		show func(*app) error
		want string
	}{
		{true, func(a *app) error { return a.print(value[0]) }, `{"id":"shop","running":true,"error":null}` + "\n"},
		{false, func(a *app) error { return a.print(value[0]) }, "id: shop\nrunning: true\nerror: null\n"},
		{true, func(a *app) error { return a.printTable(value, "id") }, `[{"id":"shop","running":true,"error":null}]` + "\n"},
		{false, func(a *app) error { return a.printTable(value, "id", "running", "error") }, "id    running  error\nshop  true     \n"},
		{false, func(a *app) error { return a.printTable(value[:0], "id") }, "none\n"},
	} {
		var out bytes.Buffer
		if err := c.show(&app{out: &out, people: !c.json}); err != nil || out.String() != c.want {
			t.Errorf("it shows %q, %v\n  and should show %q", &out, err, c.want)
		}
	}
}
