package ploop

import (
	"encoding/xml"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/text/encoding/charmap"
)

// descriptorName is the name of the file in the folder of an image.
const descriptorName = "DiskDescriptor.xml"

const (
	// nobody stands for no parent: that of the lowest layer.
	nobody = "00000000-0000-0000-0000-000000000000"
	// firstGUID is the top layer where a descriptor names none.
	firstGUID = "5fbaabe3-6958-40ff-92a7-860e329aab41"
)

// The kinds of layers, as a descriptor names them.
const (
	typeDelta = "Compressed"
	typePlain = "Plain"
)

// Link is one layer of a chain as the descriptor has it.
type Link struct {
	GUID  string `json:"guid"`
	File  string `json:"file"`
	Plain bool   `json:"plain,omitempty"`
}

// descriptor is the relevant part of a DiskDescriptor.xml.
type descriptor struct {
	size    int64 // of the disk, in bytes
	cluster int64
	top     string
	images  map[string]Link
	parents map[string]string
}

// diskImage is the file's own shape. Its root is Parallels_disk_image until April
// 2020 and Virtuozzo_disk_image since; the tools take any.
type diskImage struct {
	Parameters struct {
		Size       int64 `xml:"Disk_size"`
		Padding    int64 `xml:"Padding"`
		Encryption struct {
			Engine string `xml:"Engine"`
			KeyID  string `xml:"KeyId"` // since 7.x
		} `xml:"Encryption"`
	} `xml:"Disk_Parameters"`
	Storage []struct {
		Start     int64      `xml:"Start"`
		End       int64      `xml:"End"`
		Blocksize int64      `xml:"Blocksize"`
		Images    []diskFile `xml:"Image"`
	} `xml:"StorageData>Storage"`
	// Parent is the folder of another image, whose layers are below these; since 7.x.
	Parent string `xml:"StorageData>Volume>Parent"`
	Top    string `xml:"Snapshots>TopGUID"`
	Shots  []struct {
		GUID   string `xml:"GUID"`
		Parent string `xml:"ParentGUID"`
	} `xml:"Snapshots>Shot"`
}

// diskFile is one file of the chain.
type diskFile struct {
	GUID string `xml:"GUID"`
	Type string `xml:"Type"`
	File string `xml:"File"`
}

// Top is the highest layer of the image in a folder, its file below that: the one that is written to while the disk is
// in use.
func Top(folder string) (Link, error) {
	f, err := os.Open(filepath.Join(folder, descriptorName))
	if err != nil {
		return Link{}, fmt.Errorf("ploop: %w", err)
	}
	defer f.Close()
	var links []Link
	d, err := parseDescriptor(f)
	if err == nil {
		links, err = d.chain("")
	}
	if err != nil {
		return Link{}, fmt.Errorf("ploop: %s: %w", f.Name(), err)
	}
	top := links[len(links)-1]
	if top.File, err = within(folder, top.File); err != nil {
		return Link{}, fmt.Errorf("ploop: %s: %w", f.Name(), err)
	}
	return top, nil
}

// parseDescriptor reads a DiskDescriptor.xml.
func parseDescriptor(r io.Reader) (*descriptor, error) {
	limited := &io.LimitedReader{R: r, N: maxXML + 1}
	var x diskImage
	dec := xml.NewDecoder(limited)
	dec.CharsetReader = decode
	err := dec.Decode(&x)
	if limited.N == 0 {
		return nil, fmt.Errorf("it has more than %d bytes, and no descriptor is so long", maxXML)
	}
	if err != nil {
		return nil, fmt.Errorf("it cannot be read as a disk descriptor: %w", err)
	}
	if err := x.check(); err != nil {
		return nil, err
	}
	s := x.Storage[0]
	d := &descriptor{top: guid(x.Top), images: map[string]Link{}, parents: map[string]string{}}
	d.size, d.cluster = s.End*sector, s.Blocksize*sector
	for _, i := range s.Images {
		if err := d.add(i); err != nil {
			return nil, err
		}
	}
	for _, s := range x.Shots {
		g := guid(s.GUID)
		if _, twice := d.parents[g]; twice || g == "" || g == nobody {
			return nil, fmt.Errorf("the snapshot %q is there twice or has no name of its own", g)
		}
		d.parents[g] = guid(s.Parent)
	}
	if len(d.images) > 1 && len(d.parents) == 0 {
		return nil, fmt.Errorf("it has %d images and no snapshot that says which of them is above which: that is no chain", len(d.images))
	}
	if d.top == "" {
		d.top = firstGUID
		if len(d.images) == 1 {
			for g := range d.images { // there is only one that it can be
				d.top = g
			}
		}
	}
	return d, nil
}

// check refuses what is not understood, and sizes that no disk has.
func (x *diskImage) check() error {
	engine, key := guid(x.Parameters.Encryption.Engine), strings.TrimSpace(x.Parameters.Encryption.KeyID)
	if engine != "" && engine != nobody || key != "" {
		return errors.New("the image is encrypted, and cannot be read without its key")
	}
	if x.Parameters.Padding != 0 {
		return fmt.Errorf("it asks for a padding of %d, which is not understood", x.Parameters.Padding)
	}
	if parent := strings.TrimSpace(x.Parent); parent != "" {
		return fmt.Errorf("its layers stand on those of another folder, %q, which are not read here", parent)
	}
	if len(x.Storage) != 1 {
		return fmt.Errorf("it has %d storages where one is expected: split images are not understood", len(x.Storage))
	}
	s := x.Storage[0]
	switch {
	case x.Parameters.Size <= 0 || x.Parameters.Size > maxEntries*maxCluster/sector:
		return fmt.Errorf("it says that the disk has %d sectors", x.Parameters.Size)
	case s.Start != 0 || s.End != x.Parameters.Size:
		return fmt.Errorf("it says that the disk has %d sectors, and that its storage goes from %d to %d", x.Parameters.Size, s.Start, s.End)
	case s.Blocksize <= 0 || s.Blocksize > maxCluster/sector:
		return fmt.Errorf("it says that a cluster has %d sectors", s.Blocksize)
	}
	return nil
}

// add takes one image of the descriptor's.
func (d *descriptor) add(i diskFile) error {
	l := Link{GUID: guid(i.GUID), File: strings.TrimSpace(i.File)}
	switch i.Type = strings.TrimSpace(i.Type); i.Type {
	case typeDelta:
	case typePlain:
		l.Plain = true
	default:
		return fmt.Errorf("image %s is of the type %q, and %q and %q are understood", l.GUID, i.Type, typeDelta, typePlain)
	}
	if _, twice := d.images[l.GUID]; twice || l.GUID == "" || l.GUID == nobody {
		return fmt.Errorf("the image %q (%s) is there twice or has no name of its own", l.GUID, l.File)
	}
	if l.File == "" {
		return fmt.Errorf("image %s has no file", l.GUID)
	}
	d.images[l.GUID] = l
	return nil
}

// charsets are the encodings that descriptors have beside UTF-8: of the places where
// the tools were used.
var charsets = map[string]*charmap.Charmap{
	"us-ascii": charmap.ISO8859_1, "iso-8859-1": charmap.ISO8859_1, "iso-8859-15": charmap.ISO8859_15,
	"windows-1251": charmap.Windows1251, "windows-1252": charmap.Windows1252, "koi8-r": charmap.KOI8R,
}

func decode(name string, r io.Reader) (io.Reader, error) {
	c, ok := charsets[strings.ToLower(name)]
	if !ok {
		return nil, fmt.Errorf("the encoding %q is not understood", name)
	}
	return c.NewDecoder().Reader(r), nil
}

// guid is a name without braces, in small letters.
func guid(s string) string {
	return strings.ToLower(strings.Trim(strings.TrimSpace(s), "{}"))
}

// chain lists the layers that make up a snapshot, from the lowest to the top. The
// empty name is that of the top.
func (d *descriptor) chain(name string) ([]Link, error) {
	if name = guid(name); name == "" {
		name = d.top
	}
	var links []Link
	seen := map[string]bool{}
	for g := name; ; {
		if seen[g] {
			return nil, fmt.Errorf("the chain goes in a circle: snapshot %s is above itself", g)
		}
		seen[g] = true
		l, ok := d.images[g]
		if !ok {
			return nil, fmt.Errorf("the snapshot %s has no image", g)
		}
		links = append(links, l)
		if len(links) > maxLayers {
			return nil, fmt.Errorf("the chain has more than %d layers", maxLayers)
		}
		parent, known := d.parents[g]
		if !known && len(d.parents) > 0 {
			return nil, fmt.Errorf("nothing says what is below the snapshot %s", g)
		}
		if parent == "" || parent == nobody {
			break
		}
		// Once the base is raw the tools call every layer plain, also the deltas above it.
		links[len(links)-1].Plain = false
		g = parent
	}
	for i, j := 0, len(links)-1; i < j; i, j = i+1, j-1 {
		links[i], links[j] = links[j], links[i]
	}
	return links, nil
}

// within makes a layer's file name one below the descriptor's folder. A forged
// descriptor must not make root read just any file.
func within(folder, file string) (string, error) {
	if filepath.IsAbs(file) {
		rel, err := filepath.Rel(folder, file)
		if err != nil {
			return "", err
		}
		file = rel
	}
	if !filepath.IsLocal(file) {
		return "", fmt.Errorf("the layer %q is not in the descriptor's own folder: put it there, and name it without a path", file)
	}
	return file, nil
}
