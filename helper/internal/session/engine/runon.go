package engine

// runOn lets the workload run on in its cgroup as it was before a dump. Whatever cannot
// be given back is said, and keeps it from nothing.
func (d *criuDump) runOn() error {
	images := ""
	if d.begun {
		images = d.h.Freeze.Gate
	}
	r, err := d.h.Freeze.Cgroup.RunOn(images)
	r.Tell(d.quiet.Log, err)
	return d.h.Freeze.Cgroup.Thaw()
}
