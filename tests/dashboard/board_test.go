package board

import (
	"os"
	"strings"
	"testing"
)

func load(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("../../monitoring/grafana-dashboard.json")
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func TestGrafanaReadsTheDashboard(t *testing.T) {
	if err := Read([]byte(load(t))); err != nil {
		t.Fatal(err)
	}
}

// Each is one word of the dashboard that is written wrong.
func TestAFaultIsNamed(t *testing.T) {
	good := load(t)
	for _, fault := range []struct{ from, to, said string }{
		{`"expr":`, `"expression":`, "panels[0].targets[0].expr: required field is missing from input"},
		{`"legendFormat":`, `"legendformat":`, "unexpected field 'legendformat'"},
		{`"type": "stat"`, `"type": "state"`, `Workloads held: Grafana has no panel of the type "state"`},
		{`"colorMode":`, `"colormode":`, "panels[0].options.Options: unexpected field 'colormode'"},
		{`"drawStyle":`, `"drawstyle":`, "unexpected field 'drawstyle'"},
		{`"unit":`, `"units":`, "Workloads held: fieldConfig: defaults.FieldConfig: unexpected field 'units'"},
		{`"gridPos":`, `"gridpos":`, "unexpected field 'gridpos'"},
		{`"displayMode": "list"`, `"displayMode": 7`, "options.legend.displayMode: json: cannot unmarshal number"},
		{`"panels":`, `"panes":`, "unexpected field 'panes'"},
	} {
		bad := strings.ReplaceAll(good, fault.from, fault.to)
		if bad == good {
			t.Fatalf("the dashboard has no %s", fault.from)
		}
		if err := Read([]byte(bad)); err == nil || !strings.Contains(err.Error(), fault.said) {
			t.Errorf("%s: %v", fault.to, err)
		}
	}
}
