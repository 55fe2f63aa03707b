package store

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/profile"
	"github.com/clairun/clai-sandbox/sandbox/image/unpack"
)

// An OCI image layout (image-spec 1.1, image-layout.md). Nothing in it is believed before its
// digest was compared, and a digest is the only thing that leads to a file: beneath blobs/sha256,
// through no link.

const (
	maxJSON   = 4 << 20
	maxLayers = 127
	maxNested = 3 // indexes in indexes
)

type descriptor struct {
	MediaType string   `json:"mediaType"`
	Digest    string   `json:"digest"`
	Size      int64    `json:"size"`
	URLs      []string `json:"urls"`
	Platform  *struct {
		Architecture string `json:"architecture"`
		OS           string `json:"os"`
	} `json:"platform"`
}

type manifest struct {
	MediaType string       `json:"mediaType"`
	Manifests []descriptor `json:"manifests"` // of an index
	Config    descriptor   `json:"config"`
	Layers    []descriptor `json:"layers"`
}

type config struct {
	Architecture string `json:"architecture"`
	OS           string `json:"os"`
	Config       struct {
		Env []string `json:"Env"`
	} `json:"config"`
	RootFS struct {
		DiffIDs []string `json:"diff_ids"`
	} `json:"rootfs"`
}

// isLayout reports whether a directory is an OCI image layout.
func isLayout(dir int) (bool, error) {
	text, err := readBeneath(dir, "oci-layout")
	if err == unix.ENOENT || err == unix.ENOTDIR {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("oci-layout: %w", err)
	}
	var about struct {
		Version string `json:"imageLayoutVersion"`
	}
	if err := json.Unmarshal(text, &about); err != nil || !strings.HasPrefix(about.Version, "1.") {
		return false, &Error{"oci-layout names no version that is known: " + profile.Printable(about.Version), "1.0.0 is"}
	}
	return true, nil
}

func readBeneath(dir int, name string) ([]byte, error) {
	fd, err := unpack.Beneath(dir, name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), name)
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() || info.Size() > maxJSON {
		return nil, fmt.Errorf("not a file of at most %d bytes", maxJSON)
	}
	return io.ReadAll(io.LimitReader(file, maxJSON))
}

// blob opens what a digest names.
func (d *descriptor) blob(dir int) (*os.File, error) {
	refuse := func(why string) (*os.File, error) {
		return nil, &Error{"blob " + profile.Printable(shortened(d.Digest)) + ": " + why, "the image is damaged, or somebody changed it: copy it again"}
	}
	sum, is := strings.CutPrefix(d.Digest, "sha256:")
	if !is || len(sum) != 64 || strings.Trim(sum, "0123456789abcdef") != "" {
		return refuse("its digest is not sha256: and 64 digits")
	}
	fd, err := unpack.Beneath(dir, path.Join("blobs/sha256", sum), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_NOCTTY)
	if err == unix.ENOENT && len(d.URLs) > 0 {
		return refuse("it is kept elsewhere, and nothing is fetched")
	}
	if err != nil {
		return refuse(err.Error())
	}
	file := os.NewFile(uintptr(fd), sum)
	info, err := file.Stat()
	if err == nil && (!info.Mode().IsRegular() || info.Size() != d.Size) {
		err = fmt.Errorf("not a file of %d bytes", d.Size)
	}
	if err != nil {
		file.Close()
		return refuse(err.Error())
	}
	return file, nil
}

func shortened(s string) string {
	if len(s) > 100 {
		return s[:100] + "…"
	}
	return s
}

func (d *descriptor) mismatch(is string) error {
	return &Error{"blob " + d.Digest + ": its content has another digest, " + is, "the image is damaged, or somebody changed it: copy it again"}
}

// json reads a blob that holds JSON.
func (d *descriptor) json(dir int, into any) error {
	if d.Size < 0 || d.Size > maxJSON {
		return &Error{fmt.Sprintf("blob %s: more than %d bytes", profile.Printable(shortened(d.Digest)), maxJSON), "it should be a small piece of JSON"}
	}
	file, err := d.blob(dir)
	if err != nil {
		return err
	}
	defer file.Close()
	text, err := io.ReadAll(io.LimitReader(file, maxJSON))
	if err != nil {
		return err
	}
	if is := fmt.Sprintf("sha256:%x", sha256.Sum256(text)); is != d.Digest {
		return d.mismatch(is)
	}
	if err := json.Unmarshal(text, into); err != nil {
		return &Error{"blob " + d.Digest + ": " + err.Error(), "the image is damaged: copy it again"}
	}
	return nil
}

// choose finds the one manifest for this machine.
func choose(dir int, list []descriptor, depth int) (*descriptor, *manifest, error) {
	var fitting []descriptor
	for _, d := range list {
		if len(list) == 1 || d.Platform == nil || d.Platform.OS == "linux" && d.Platform.Architecture == runtime.GOARCH {
			fitting = append(fitting, d)
		}
	}
	if len(fitting) != 1 {
		return nil, nil, &Error{fmt.Sprintf("%d of %d images in the layout are for linux/%s", len(fitting), len(list), runtime.GOARCH), "copy the one to be imported into a layout of its own"}
	}
	var m manifest
	if err := fitting[0].json(dir, &m); err != nil {
		return nil, nil, err
	}
	if m.Manifests == nil {
		return &fitting[0], &m, nil
	}
	if depth == maxNested {
		return nil, nil, &Error{fmt.Sprintf("its indexes lie in each other more than %d deep", maxNested), "copy the image into a layout of its own"}
	}
	return choose(dir, m.Manifests, depth+1)
}

// layout imports the image of an OCI layout.
func (m *maker) layout(dir int) error {
	text, err := readBeneath(dir, "index.json")
	if err != nil {
		return fmt.Errorf("index.json: %w", err)
	}
	var index manifest
	if err := json.Unmarshal(text, &index); err != nil {
		return fmt.Errorf("index.json: %w", err)
	}
	chosen, manifest, err := choose(dir, index.Manifests, 1)
	if err != nil {
		return err
	}
	var about config
	if err := manifest.Config.json(dir, &about); err != nil {
		return err
	}
	if n := len(manifest.Layers); n == 0 || n > maxLayers || n != len(about.RootFS.DiffIDs) {
		return &Error{fmt.Sprintf("the image has %d layers, and names %d; 1 to %d are taken", n, len(about.RootFS.DiffIDs), maxLayers), "copy it again, or flatten it"}
	}
	m.image.Digest, m.image.Architecture = chosen.Digest, about.Architecture
	m.image.Path = pathFrom(about.Config.Env)
	chain := ""
	for i := range manifest.Layers {
		if chain = about.RootFS.DiffIDs[i]; i > 0 {
			chain = fmt.Sprintf("sha256:%x", sha256.Sum256([]byte("sha256:"+m.image.Layer+" "+chain)))
		}
		id, is := strings.CutPrefix(chain, "sha256:")
		if !is || len(id) != 64 || strings.Trim(id, "0123456789abcdef") != "" {
			return &Error{"layer " + profile.Printable(shortened(chain)) + ": its digest is not sha256: and 64 digits", "copy the image again"}
		}
		if err := m.ociLayer(dir, id, &manifest.Layers[i], about.RootFS.DiffIDs[i]); err != nil {
			return err
		}
	}
	return nil
}

// ociLayer unpacks one layer, and then compares both digests: nothing keeps what it was if they are
// others.
func (m *maker) ociLayer(dir int, id string, d *descriptor, diffID string) error {
	return m.layer(id, func(root int) error {
		file, err := d.blob(dir)
		if err != nil {
			return err
		}
		defer file.Close()
		packed, unpacked := sha256.New(), sha256.New()
		raw := io.TeeReader(file, packed)
		plain, err := decompress(raw)
		if err != nil {
			return fmt.Errorf("layer %s: %w", d.Digest, err)
		}
		defer plain.Close()
		stream := io.TeeReader(m.budget.Reader(m.ctx, plain), unpacked)
		if err := m.unpack(root, tar.NewReader(stream), true); err != nil {
			return fmt.Errorf("layer %s: %w", d.Digest, err)
		}
		for _, rest := range []io.Reader{stream, raw} {
			if err := drain(m.ctx, rest); err != nil {
				return fmt.Errorf("layer %s: %w", d.Digest, err)
			}
		}
		if is := digestOf(packed); is != d.Digest {
			return d.mismatch(is)
		}
		if is := digestOf(unpacked); is != diffID {
			return (&descriptor{Digest: diffID}).mismatch(is)
		}
		return nil
	})
}

// pathFrom is $PATH of an image's environment, if it is one that a command could use.
func pathFrom(environment []string) string {
	for _, entry := range environment {
		if value, is := strings.CutPrefix(entry, "PATH="); is && value != "" && len(value) < 4096 && !strings.ContainsAny(value, "\x00\n") {
			for dir := range strings.SplitSeq(value, ":") {
				if !path.IsAbs(dir) {
					return ""
				}
			}
			return value
		}
	}
	return ""
}

// about is what is remembered of a layer: that it is whole, and what the image has so far.
func (m *maker) about() (string, error) {
	text, err := json.Marshal(m.image.Report)
	return string(text), err
}

// known takes a layer that an earlier import made.
func (m *maker) known(id, about string) error {
	if err := json.Unmarshal([]byte(about), &m.image.Report); err != nil {
		return fmt.Errorf("layer %s: %w", id, err)
	}
	m.image.Layer, m.image.Layers = id, append(m.image.Layers, id)
	return nil
}
