package metrics

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"
)

// page is a text in Prometheus's exposition format.
type page struct{ bytes.Buffer }

// label is a name and its value.
type label struct{ name, value string }

// family begins the series of one metric.
func (p *page) family(name, kind, help string) {
	fmt.Fprintf(p, "# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)

// series is one line.
func (p *page) series(name string, value float64, labels ...label) {
	p.WriteString(name)
	for i, l := range labels {
		fmt.Fprintf(p, `%c%s="%s"`, "{,"[min(i, 1)], l.name, escape.Replace(l.value))
	}
	if len(labels) > 0 {
		p.WriteByte('}')
	}
	fmt.Fprintf(p, " %s\n", number(value))
}

func number(value float64) string { return strconv.FormatFloat(value, 'g', -1, 64) }

func seconds(at time.Time) float64 { return float64(at.UnixMilli()) / 1000 }

func yes(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// Page is the metrics of the sessions below root and of this host's backups, for a Prometheus. With an error beside it, a part is missing on the page.
func Page(root, version string) ([]byte, error) {
	all, unreadable, err := list(root)
	if err != nil {
		return nil, err
	}
	t, err := change(root, all)
	if t == nil {
		return nil, err
	}
	backups, berr := listBackups(backupsDir(root))
	return render(version, all, unreadable, t, backups), errors.Join(err, berr)
}

func render(version string, all []session, unreadable []string, t *Tally, backups []backup) []byte {
	p := &page{}
	p.family("handover_build_info", "gauge", "The helper that wrote these metrics.")
	p.series("handover_build_info", 1, label{"version", version})
	p.writeSessions(all, unreadable)
	var sending int64
	for _, s := range all {
		if !s.Ended {
			sending += s.sent()
		}
	}
	t.write(p, sending)
	p.writeBackups(backups)
	return p.Bytes()
}

// write tells of the sessions that have ended; of those that have not, the bytes that they have sent so far.
func (t *Tally) write(p *page, sending int64) {
	p.family("handover_sessions_ended_total", "counter", "Sessions that have ended on this host, by the state in which they did.")
	byWords := func(a, b Ending) int {
		return cmp.Or(cmp.Compare(a.Role, b.Role), cmp.Compare(a.Mode, b.Mode), cmp.Compare(a.State, b.State))
	}
	for _, e := range slices.SortedFunc(maps.Keys(t.Ended), byWords) {
		p.series("handover_sessions_ended_total", float64(t.Ended[e]), label{"role", string(e.Role)}, label{"mode", e.Mode}, label{"state", string(e.State)})
	}
	p.family("handover_sent_bytes_total", "counter", "Bytes that sessions have sent from this host.")
	p.series("handover_sent_bytes_total", float64(t.SentBytes+sending))
	p.family("handover_pause_seconds", "histogram", "Times for which workloads of this host stood still, also where they then ran on here.")
	for _, mode := range sorted(t.Pauses) {
		t.Pauses[mode].write(p, mode)
	}
	t.writeWorkloads(p)
}

func (h *Pauses) write(p *page, mode string) {
	for i, bound := range pauseBounds {
		p.series("handover_pause_seconds_bucket", float64(h.Within[i]), label{"mode", mode}, label{"le", number(bound)})
	}
	p.series("handover_pause_seconds_bucket", float64(h.Count), label{"mode", mode}, label{"le", "+Inf"})
	p.series("handover_pause_seconds_sum", h.Seconds, label{"mode", mode})
	p.series("handover_pause_seconds_count", float64(h.Count), label{"mode", mode})
}

func (t *Tally) writeWorkloads(p *page) {
	pauses := []struct {
		name, help string
		value      func(*Pause) float64
	}{
		{"handover_last_pause_seconds", "For how long the workload stood still last.", func(l *Pause) float64 { return l.Seconds }},
		{"handover_last_pause_timestamp_seconds", "When that session ended.", func(l *Pause) float64 { return seconds(l.At) }},
	}
	for _, m := range pauses {
		p.family(m.name, "gauge", m.help)
		for _, name := range sorted(t.Workloads) {
			if last := t.Workloads[name].Pause; last != nil {
				p.series(m.name, m.value(last), label{"workload", name}, label{"mode", last.Mode})
			}
		}
	}
	p.family("handover_last_failure_timestamp_seconds", "gauge", "When a session of the workload ended last without its aim.")
	for _, name := range sorted(t.Workloads) {
		if last := t.Workloads[name].Failure; last != nil {
			p.series("handover_last_failure_timestamp_seconds", seconds(last.At),
				label{"workload", name}, label{"role", string(last.Role)}, label{"state", string(last.State)})
		}
	}
}

// Write puts a page where node_exporter reads it, whole or not at all.
func Write(path string, page []byte) error {
	if _, err := os.Stat(filepath.Dir(path)); errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("metrics: the folder %s is missing: name the one in node_exporter's --collector.textfile.directory", filepath.Dir(path))
	}
	return replace(path, page, 0o644)
}

// replace writes a file beside the other one, and renames it: readers see the old or the new one.
func replace(path string, data []byte, mode os.FileMode) error {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return fmt.Errorf("metrics: %w", err)
	}
	defer os.Remove(f.Name()) // once it is renamed, there is nothing of that name
	_, err = f.Write(data)
	if err = errors.Join(err, f.Chmod(mode), f.Sync(), f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("metrics: %s: %w", path, err)
	}
	return nil
}
