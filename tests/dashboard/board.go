// Package board reads a dashboard by Grafana's own types, which its makers generate for programs that write dashboards.
package board

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/grafana/grafana-foundation-sdk/go/cog"
	"github.com/grafana/grafana-foundation-sdk/go/cog/plugins"
	"github.com/grafana/grafana-foundation-sdk/go/dashboard"
)

// Read fails at a field that Grafana does not know, at one that it needs and does not find, and at a panel of no kind of its own.
func Read(text []byte) error {
	// The options of each kind of panel, and the questions to each kind of source, have types of their own.
	plugins.RegisterDefaultPlugins()
	var board dashboard.Dashboard
	if err := told(board.UnmarshalJSONStrict(text)); err != nil {
		return err
	}
	if len(board.Panels) == 0 {
		return errors.New("it has no panels")
	}
	return errors.Join(told(board.Validate()), readPanels(text))
}

// readPanels looks at what the dashboard's own reader passes over: the kind of a panel, and the settings of its fields.
func readPanels(text []byte) error {
	var board struct {
		Panels []struct {
			Title, Type string
			FieldConfig json.RawMessage
		}
	}
	if err := json.Unmarshal(text, &board); err != nil {
		return err
	}
	var found []error
	for _, panel := range board.Panels {
		if _, known := cog.ConfigForPanelcfgVariant(panel.Type); !known {
			found = append(found, fmt.Errorf("%s: Grafana has no panel of the type %q", panel.Title, panel.Type))
		}
		var fields dashboard.FieldConfigSource
		if err := told(fields.UnmarshalJSONStrict(panel.FieldConfig)); err != nil {
			found = append(found, fmt.Errorf("%s: fieldConfig: %w", panel.Title, err))
		}
	}
	return errors.Join(found...)
}

// told is nil for a list without errors, which these readers return where all is well.
func told(err error) error {
	if list := (cog.BuildErrors{}); errors.As(err, &list) && len(list) == 0 {
		return nil
	}
	return err
}
