package main

import (
	"strings"

	"github.com/spf13/cobra"
)

const (
	aSession = "/var/lib/handover/sessions/shop-20261121t041500z"
	aBundle  = "/vz/private/101/root.hdd"
)

// examples are one for each command that people call, by its words.
var examples = map[string]string{
	"cache pin":        `pcopy cache pin --seconds 3600 --read --lock /dev/vdb`,
	"cache show":       `pcopy cache show --read /var/lib/mysql/ibdata1`,
	"host guard":       `pcopy host guard --all`,
	"host metrics":     `pcopy host metrics --write /var/lib/prometheus/node-exporter/handover.prom`,
	"host probe":       `pcopy host probe --json`,
	"image check":      `pcopy image check ` + aBundle,
	"image convert":    `pcopy image convert --format qcow2 ` + aBundle + ` /srv/images/web1.qcow2`,
	"image digest":     `pcopy image digest /srv/images/web1.img /dev/vg0/web1`,
	"image fill":       `pcopy image fill /srv/images/shop.img /srv/shop --stop /root/stop-shop --away /srv/shop.before`,
	"image info":       `pcopy image info ` + aBundle,
	"image merge":      `pcopy image merge --format qcow2 /vz/web1/root.hds /vz/web1/root.hds.delta /srv/images/web1.qcow2`,
	"image sync":       `pcopy image sync --dontneed /srv/images/web1.img`,
	"ploop copy":       `pcopy ploop copy -d /srv/images/web1.hds`,
	"ploop receive":    `pcopy ploop receive --dialect ploop-1.12 -d /srv/images/web1.hds`,
	"ploop send":       `pcopy ploop send --device /dev/vg0/web1 --to ` + aBundle + `/root.hds -- ssh node7 ploop`,
	"session abort":    `pcopy session abort ` + aSession,
	"session continue": `pcopy session continue ` + aSession,
	"session cutover":  `pcopy session cutover ` + aSession + ` --timeout 600`,
	"session identity": `pcopy session identity ` + aSession,
	"session list":     `pcopy session list --json`,
	"session receive":  `pcopy session receive ` + aSession,
	"session recover":  `pcopy session recover --all`,
	"session resolve":  `pcopy session resolve ` + aSession + ` --outcome resumed`,
	"session send":     `pcopy session send ` + aSession,
	"session show":     `pcopy session show ` + aSession,
	"session stream":   `ssh node2 pcopy session stream 127.0.0.1:40123`,
	"session wait":     `pcopy session wait ` + aSession + ` --until converged,ended`,
	"snapshot copy":    `pcopy snapshot copy backup1:/srv/backups/shop 5a3e7d04 /srv/shop-then`,
	"snapshot delete":  `pcopy snapshot delete /backup/shop before-upgrade`,
	"snapshot export":  `pcopy snapshot export /backup/shop before-upgrade /srv/data.qcow2 --volume data`,
	"snapshot join":    `pcopy snapshot join node1:/backup/shop /backup/shop --current`,
	"snapshot list":    `pcopy snapshot list /backup/shop`,
	"snapshot note":    `pcopy snapshot note /backup/shop --volume data=/var/lib/handover/volumes/shop.img`,
	"snapshot prune":   `pcopy snapshot prune /backup/shop --keep-daily 7 --keep-weekly 5 --dry-run`,
	"snapshot pull":    `pcopy snapshot pull /run/web.json`,
	"snapshot push":    `pcopy snapshot push --targets /run/web.json`,
	"snapshot restore": `pcopy snapshot restore /backup/shop before-upgrade --volume data=/srv/restored.img`,
	"snapshot show":    `pcopy snapshot show /backup/shop before-upgrade`,
	"snapshot stores":  `pcopy snapshot stores backup1:/srv/backups`,
	"snapshot take":    `pcopy snapshot take /backup/shop --volume data=/srv/images/shop.img --name before-upgrade`,
	"snapshot untrack": `pcopy snapshot untrack /backup/shop`,
	"snapshot verify":  `pcopy snapshot verify /backup/shop`,
	"snapshot wave":    `pcopy snapshot wave /srv/parts.json --before 'sync'`,
	"track bitmap":     `pcopy track bitmap /backup/web1.bitmap --extents`,
	"track export":     `pcopy track export web1 --bitmap /backup/web1.bitmap`,
	"track list":       `pcopy track list`,
	"track start":      `pcopy track start /dev/vg0/web1 --name web1`,
	"track stop":       `pcopy track stop web1`,
	"track swap":       `pcopy track swap web1 --bitmap /backup/web1.bitmap`,
	"version":          `pcopy version --json`,
	"watch list":       `pcopy watch list --null /srv/files | rsync --archive --from0 --files-from=- /srv/files/ backup:/srv/files/`,
	"watch run":        `pcopy watch run /srv/files`,
	"watch start":      `pcopy watch start /srv/files`,
	"watch stop":       `pcopy watch stop /srv/files`,
}

// addExamples gives each command below c its example, where it has none of its own.
func addExamples(c *cobra.Command) {
	for _, below := range c.Commands() {
		if example, ok := examples[words(below)]; ok && below.Example == "" {
			below.Example = "  " + strings.ReplaceAll(example, "\n", "\n  ")
		}
		addExamples(below)
	}
}
