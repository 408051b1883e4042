package main

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"go.yaml.in/yaml/v3"
)

// print answers with one value.
func (a *app) print(v any) error { return a.printTo(a.out, v) }

func (a *app) printTo(w io.Writer, v any) error {
	if a.people && !a.json {
		return readable(w, v)
	}
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	return e.Encode(v)
}

// printTable answers with a list: in JSON whole, for people the named columns.
func (a *app) printTable(v any, columns ...string) error {
	if a.json || !a.people {
		return a.print(v)
	}
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var rows []map[string]any
	if err := json.Unmarshal(b, &rows); err != nil {
		return err
	}
	if len(rows) == 0 {
		_, err := fmt.Fprintln(a.out, "none")
		return err
	}
	t := tabwriter.NewWriter(a.out, 0, 8, 2, ' ', 0)
	line := func(cell func(column string) any) {
		for i, column := range columns {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cell(column))
		}
		fmt.Fprintln(t)
	}
	line(func(column string) any { return column })
	for _, row := range rows {
		line(func(column string) any {
			if row[column] == nil {
				return ""
			}
			return row[column]
		})
	}
	return t.Flush()
}

// readable writes a value as YAML blocks, its keys in the order of its JSON.
func readable(w io.Writer, v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var document yaml.Node
	if err := yaml.Unmarshal(b, &document); err != nil { // JSON is YAML
		return err
	}
	unquoted(&document)
	e := yaml.NewEncoder(w)
	e.SetIndent(2)
	if err := e.Encode(&document); err != nil {
		return err
	}
	return e.Close()
}

// unquoted takes JSON's braces and quotes off.
func unquoted(n *yaml.Node) {
	n.Style = 0
	for _, inner := range n.Content {
		unquoted(inner)
	}
}
