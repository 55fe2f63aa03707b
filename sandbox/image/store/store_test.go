package store

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/klauspost/compress/zstd"
	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/image"
	"github.com/clairun/clai-sandbox/sandbox/image/unpack"
)

// kills is how many imports a test kills; -kills 500 takes some minutes.
var kills = flag.Int("kills", 8, "how many imports are killed")

func TestMain(m *testing.M) {
	if dir := os.Getenv("TEST_IMPORT_INTO"); dir != "" { // the program that a test kills
		s, err := Open(context.Background(), dir)
		if err == nil {
			s.loose = true
			_, err = s.Import(context.Background(), os.Getenv("TEST_IMPORT_FROM"), "killed", roomy())
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func roomy() unpack.Budget { return unpack.Budget{Bytes: 1 << 30, Entries: 1_000_000} }

// layer is an archive of files, each with its name in it.
func layer(t testing.TB, names ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, name := range names {
		h := &tar.Header{Name: name, Mode: 0o755, Typeflag: tar.TypeReg, Size: int64(len(name))}
		if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Size = tar.TypeDir, 0
		}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Size > 0 {
			w.Write([]byte(name))
		}
	}
	w.Close()
	return b.Bytes()
}

func gzipped(text []byte) []byte {
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	w.Write(text)
	w.Close()
	return b.Bytes()
}

func write(t testing.TB, name string, text []byte) string {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, text, 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func open(t testing.TB, dir string) *Store {
	t.Helper()
	s, err := Open(context.Background(), dir)
	if err != nil {
		t.Fatal(err)
	}
	s.loose = true
	return s
}

// import1 imports by a store that is opened and closed for that.
func import1(t testing.TB, dir, source, name string) (*image.Image, error) {
	t.Helper()
	s := open(t, dir)
	defer s.Close()
	return s.Import(context.Background(), source, name, roomy())
}

// trees are the directories of layers.
func trees(t testing.TB, dir string) []string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(image.Graph(dir), image.Driver, "dir/*"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range found {
		found[i] = filepath.Base(found[i])
	}
	slices.Sort(found)
	return found
}

// checkEmpty fails if anything of an import is there.
func checkEmpty(t testing.TB, dir string) {
	t.Helper()
	s := open(t, dir)
	defer s.Close()
	images, err := s.store.Images()
	layers, err2 := s.store.Layers()
	names, err3 := os.ReadDir(image.Names(dir))
	if err := errors.Join(err, err2, err3); err != nil || len(images)+len(layers)+len(names)+len(trees(t, dir)) > 0 {
		t.Fatalf("%v; left: images %v, layers %v, names %v, trees %v", err, images, layers, names, trees(t, dir))
	}
	for _, name := range []string{markerName, buildName} {
		if _, err := os.Lstat(filepath.Join(dir, name)); err == nil {
			t.Error(name, "is left")
		}
	}
}

// oci is an OCI layout under construction.
type oci struct {
	t   testing.TB
	dir string
}

func newOCI(t testing.TB) oci {
	o := oci{t, t.TempDir()}
	write(t, filepath.Join(o.dir, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`))
	return o
}

func sum(text []byte) string { return fmt.Sprintf("sha256:%x", sha256.Sum256(text)) }

func (o oci) blob(text []byte) descriptor {
	digest := sum(text)
	write(o.t, filepath.Join(o.dir, "blobs/sha256", digest[7:]), text)
	return descriptor{Digest: digest, Size: int64(len(text))}
}

func (o oci) json(v any) descriptor {
	text, err := json.Marshal(v)
	if err != nil {
		o.t.Fatal(err)
	}
	return o.blob(text)
}

func (o oci) index(list ...descriptor) string {
	text, _ := json.Marshal(manifest{Manifests: list})
	write(o.t, filepath.Join(o.dir, "index.json"), text)
	return o.dir
}

// image writes a whole image of these layers.
func (o oci) image(layers ...[]byte) (manifest, config) {
	var m manifest
	var c config
	c.Architecture = runtime.GOARCH
	c.Config.Env = []string{"PATH=/opt/bin:/usr/bin"}
	for _, l := range layers {
		m.Layers = append(m.Layers, o.blob(gzipped(l)))
		c.RootFS.DiffIDs = append(c.RootFS.DiffIDs, sum(l))
	}
	m.Config = o.json(c)
	o.index(o.json(m))
	return m, c
}

func TestAnArchiveIsAllThereOrNotAtAll(t *testing.T) {
	dir, files := filepath.Join(t.TempDir(), "images"), t.TempDir()
	plain := layer(t, "usr/", "usr/tool")
	var z bytes.Buffer
	w, _ := zstd.NewWriter(&z)
	w.Write(plain)
	w.Close()
	for name, text := range map[string][]byte{"plain": plain, "gzip": gzipped(plain), "zstd": z.Bytes()} {
		i, err := import1(t, dir, write(t, filepath.Join(files, name), text), name)
		if err != nil {
			t.Fatal(name, err)
		}
		got, err := os.ReadFile(filepath.Join(i.Root(dir), "usr/tool"))
		if string(got) != "usr/tool" || err != nil || i.Digest != sum(text) {
			t.Errorf("%s: %q %v %s", name, got, err, i.Digest)
		}
		known, hold, err := image.Use(dir, name)
		hold.Close()
		if err != nil || known.Layer != i.Layer || known.Entries != 2 {
			t.Errorf("%s: %+v %v", name, known, err)
		}
	}
	if _, err := import1(t, dir, filepath.Join(files, "plain"), "plain"); err == nil || !strings.Contains(err.Error(), "there is an image plain") {
		t.Error("a second one of the same name:", err)
	}
	for name := range map[string]bool{"plain": true, "gzip": true, "zstd": true} {
		s := open(t, dir)
		if err := s.Remove(name); err != nil {
			t.Error(err)
		}
		s.Close()
	}
	checkEmpty(t, dir)
	for name, c := range map[string]struct {
		text []byte
		want string
	}{
		"cut off":        {gzipped(plain)[:60], "unexpected EOF"},
		"cut off, plain": {plain[:700], "unexpected EOF"},
		"no archive":     {bytes.Repeat([]byte("words "), 500), "invalid tar header"},
		"empty":          {nil, "holds no files"},
		"xz":             {[]byte("\xfd7zXZ\x00..."), "compressed by xz"},
		"a bomb":         {gzipped(bomb(64 << 20)), "more than 8388608 bytes"},
		"attributes":     {gzipped(attributes(32 << 20)), "archives come to more than 8388608 bytes"},
		"late":           {layer(t, "usr/tool", "../x"), `entry "../x"`},
		"a layout":       {layer(t, "oci-layout", "index.json", "blobs/"), "is not its files"},
		"etc is a file":  {layer(t, "etc"), `entry "etc"`},
	} {
		s := open(t, dir)
		_, err := s.Import(context.Background(), write(t, filepath.Join(files, "x"), c.text), "x", unpack.Budget{Bytes: 8 << 20, Entries: 1000})
		s.Close()
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
		if left := trees(t, dir); len(left) > 0 { // without another command
			t.Errorf("%s left %v", name, left)
		}
		checkEmpty(t, dir)
	}
}

// bomb is an archive of one long file, which is small when it is compressed.
func bomb(size int64) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	w.WriteHeader(&tar.Header{Name: "usr/tool", Typeflag: tar.TypeReg, Size: size})
	w.Write(make([]byte, size))
	w.Close()
	return b.Bytes()
}

// attributes is an archive whose files are small, and what is said about them is not.
func attributes(size int) []byte {
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for range size / (512 << 10) {
		w.WriteHeader(&tar.Header{Name: "usr/tool", Typeflag: tar.TypeReg, PAXRecords: map[string]string{"SCHILY.xattr.user.x": strings.Repeat("x", 512<<10)}})
	}
	w.Close()
	return b.Bytes()
}

func TestLayersAreShared(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	base, one, two := layer(t, "usr/", "usr/tool", "usr/old"), layer(t, "opt/one", "usr/.wh.old"), layer(t, "opt/two")
	o1, o2 := newOCI(t), newOCI(t)
	o1.image(base, one)
	o2.image(base, two)
	first, err := import1(t, dir, o1.dir, "first")
	if err != nil {
		t.Fatal(err)
	}
	second, err := import1(t, dir, o2.dir, "second")
	if err != nil {
		t.Fatal(err)
	}
	if n := len(trees(t, dir)); n != 3 || first.Layers[0] != second.Layers[0] || first.Layers[1] == second.Layers[1] {
		t.Errorf("%d layers, %v and %v", n, first.Layers, second.Layers)
	}
	if first.Path != "/opt/bin:/usr/bin" || first.Architecture != runtime.GOARCH || first.Entries != 4 {
		t.Errorf("%+v", first)
	}
	a, err1 := os.Stat(filepath.Join(first.Root(dir), "usr/tool"))
	b, err2 := os.Stat(filepath.Join(second.Root(dir), "usr/tool"))
	if errors.Join(err1, err2) != nil || !os.SameFile(a, b) {
		t.Error("a file of the common layer is twice on the disk", err1, err2)
	}
	if _, err := os.Lstat(filepath.Join(first.Root(dir), "usr/old")); err == nil {
		t.Error("what a whiteout removed is there")
	}
	if _, err := os.Lstat(filepath.Join(second.Root(dir), "usr/old")); err != nil {
		t.Error("what another image's whiteout removed is gone")
	}
	third, err := import1(t, dir, o1.dir, "third") // all of it is there
	if err != nil || !slices.Equal(third.Layers, first.Layers) || third.Entries != first.Entries {
		t.Errorf("%+v %v", third, err)
	}
	for _, c := range []struct {
		name string
		left int
	}{{"first", 3}, {"third", 2}, {"second", 0}} {
		s := open(t, dir)
		err := s.Remove(c.name)
		s.Close()
		if n := len(trees(t, dir)); err != nil || n != c.left {
			t.Errorf("without %s there are %d layers, %v", c.name, n, err)
		}
	}
	checkEmpty(t, dir)
}

// Each layer stands on the one below: what it removes, hides and brings back is what an engine
// would show.
func TestALayoutOfSeveralLayersIsPutTogether(t *testing.T) {
	o, dir := newOCI(t), filepath.Join(t.TempDir(), "images")
	o.image(layer(t, "usr/", "usr/tool", "etc/", "etc/a", "etc/b", "var/", "var/lib/", "var/lib/x"),
		layer(t, "etc/", "etc/.wh..wh..opq", "etc/c", "var/.wh.lib"),
		layer(t, "var/lib/", "var/lib/y", "usr/.wh.tool"),
		layer(t, "usr/tool", "etc/.wh.c", "etc/b"))
	i, err := import1(t, dir, o.dir, "x")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	root := i.Root(dir)
	err = filepath.WalkDir(root, func(path string, d os.DirEntry, err error) error {
		if err == nil && !d.IsDir() && d.Name() != "hosts" && d.Name() != "resolv.conf" { // those two an image always has
			got = append(got, strings.TrimPrefix(path, root+"/"))
		}
		return err
	})
	if want := "etc/b usr/tool var/lib/y"; err != nil || strings.Join(got, " ") != want || len(i.Layers) != 4 {
		t.Errorf("%q %v, %d layers", got, err, len(i.Layers))
	}
}

func TestAHostileLayoutIsRefused(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	base := layer(t, "usr/", "usr/tool")
	secret := write(t, filepath.Join(t.TempDir(), "secret"), []byte("{}"))
	for name, c := range map[string]struct {
		make func(o oci)
		want string
	}{
		"another content": {func(o oci) {
			m, _ := o.image(base)
			other := gzipped(layer(t, "usr/", "usr/evil"))
			write(t, filepath.Join(o.dir, "blobs/sha256", m.Layers[0].Digest[7:]), append(other, make([]byte, int(m.Layers[0].Size)-len(other))...))
		}, "blob sha256:"},
		"another content of the same size": {func(o oci) {
			m, _ := o.image(base)
			text := gzipped(base)
			text[4] ^= 1 // the time in gzip's header: what comes out is the same
			write(t, filepath.Join(o.dir, "blobs/sha256", m.Layers[0].Digest[7:]), text)
		}, "its content has another digest"},
		"another layer than the image says": {func(o oci) {
			m, c := o.image(base)
			m.Layers[0] = o.blob(gzipped(layer(t, "usr/", "usr/evil")))
			m.Config = o.json(c)
			o.index(o.json(m))
		}, "its content has another digest"},
		"another manifest": {func(o oci) {
			m, _ := o.image(base)
			d := o.json(m)
			write(t, filepath.Join(o.dir, "blobs/sha256", d.Digest[7:]), bytes.Repeat([]byte(" "), int(d.Size)))
			o.index(d)
		}, "its content has another digest"},
		"a digest that leads out": {func(o oci) { o.index(descriptor{Digest: "sha256:../../../../../../../" + secret, Size: 2}) }, "is not sha256: and 64 digits"},
		"another kind of digest":  {func(o oci) { o.index(descriptor{Digest: "sha512:" + strings.Repeat("0", 128), Size: 2}) }, "is not sha256: and 64 digits"},
		"a blob that is a link": {func(o oci) {
			d := o.blob([]byte("{}"))
			os.Remove(filepath.Join(o.dir, "blobs/sha256", d.Digest[7:]))
			os.Symlink(secret, filepath.Join(o.dir, "blobs/sha256", d.Digest[7:]))
			o.index(d)
		}, "too many levels of symbolic links"},
		"blobs that are a link": {func(o oci) {
			o.image(base)
			os.Rename(filepath.Join(o.dir, "blobs"), filepath.Join(o.dir, "elsewhere"))
			os.Symlink("elsewhere", filepath.Join(o.dir, "blobs"))
		}, "too many levels of symbolic links"},
		"a blob that is a FIFO": {func(o oci) {
			d := o.blob([]byte("{}"))
			os.Remove(filepath.Join(o.dir, "blobs/sha256", d.Digest[7:]))
			unix.Mkfifo(filepath.Join(o.dir, "blobs/sha256", d.Digest[7:]), 0o600)
			o.index(d)
		}, "not a file of 2 bytes"},
		"another size": {func(o oci) { d := o.blob([]byte("{}")); d.Size = 3; o.index(d) }, "not a file of 3 bytes"},
		"elsewhere": {func(o oci) {
			m, c := o.image(base)
			d := descriptor{MediaType: "application/vnd.docker.image.rootfs.foreign.diff.tar.gzip", Digest: sum([]byte("x")), Size: 1, URLs: []string{"https://example.org/x"}}
			m.Layers[0], m.Config = d, o.json(c)
			o.index(o.json(m))
		}, "it is kept elsewhere, and nothing is fetched"},
		"a layer that is not there": {func(o oci) {
			m, _ := o.image(base, layer(t, "usr/more"))
			os.Remove(filepath.Join(o.dir, "blobs/sha256", m.Layers[1].Digest[7:]))
		}, "no such file or directory"},
		"settings that are not there": {func(o oci) {
			m, _ := o.image(base)
			os.Remove(filepath.Join(o.dir, "blobs/sha256", m.Config.Digest[7:]))
		}, "no such file or directory"},
		"many images": {func(o oci) { o.index(slices.Repeat([]descriptor{{Digest: sum(nil)}}, 20000)...) }, "20000 of 20000 images"},
		"more than there is": {func(o oci) {
			m, c := o.image(base)
			m.Layers[0].Size, m.Config = 1<<62, o.json(c)
			o.index(o.json(m))
		}, "not a file of 4611686018427387904 bytes"},
		"large JSON": {func(o oci) { o.index(o.blob(bytes.Repeat([]byte("["), maxJSON+1))) }, "more than 4194304 bytes"},
		"deep JSON":  {func(o oci) { o.index(o.blob(bytes.Repeat([]byte("["), 1<<20))) }, "exceeded max depth"},
		"large index": {func(o oci) {
			write(t, filepath.Join(o.dir, "index.json"), bytes.Repeat([]byte(" "), maxJSON+1))
		}, "index.json: not a file of at most"},
		"an index in itself": {func(o oci) {
			d := o.json(manifest{Manifests: []descriptor{o.json(manifest{Manifests: []descriptor{o.json(manifest{Manifests: []descriptor{{}}})}})}})
			o.index(d)
		}, "lie in each other more than 3 deep"},
		"no image":        {func(o oci) { o.index() }, "0 of 0 images"},
		"two images":      {func(o oci) { o.index(o.json(manifest{}), o.json(manifest{})) }, "2 of 2 images"},
		"no layers":       {func(o oci) { o.image() }, "has 0 layers"},
		"too many layers": {func(o oci) { m, _ := o.image(slices.Repeat([][]byte{base}, 128)...); o.index(o.json(m)) }, "has 128 layers"},
		"fewer names": {func(o oci) {
			m, c := o.image(base, base)
			c.RootFS.DiffIDs = c.RootFS.DiffIDs[:1]
			m.Config = o.json(c)
			o.index(o.json(m))
		}, "has 2 layers, and names 1"},
		"a hostile layer":  {func(o oci) { o.image(base, layer(t, "../../../evil")) }, `entry "../../../evil": its name leads out`},
		"another version":  {func(o oci) { write(t, filepath.Join(o.dir, "oci-layout"), []byte(`{"imageLayoutVersion":"9"}`)) }, "no version that is known"},
		"name to a screen": {func(o oci) { o.index(descriptor{Digest: "\x1b[2J", Size: 2}) }, `blob "\x1b[2J"`},
	} {
		t.Run(name, func(t *testing.T) {
			o := newOCI(t)
			c.make(o)
			_, err := import1(t, dir, o.dir, "x")
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error %v, want %s", err, c.want)
			}
			checkEmpty(t, dir)
		})
	}
}

func TestTheImageForThisMachineIsTaken(t *testing.T) {
	o := newOCI(t)
	platform := func(os, architecture string, d descriptor) descriptor {
		text := fmt.Sprintf(`{"digest":%q,"size":%d,"platform":{"os":%q,"architecture":%q}}`, d.Digest, d.Size, os, architecture)
		var with descriptor
		json.Unmarshal([]byte(text), &with)
		return with
	}
	m, _ := o.image(layer(t, "usr/tool"))
	other := o.json(manifest{Config: o.json(config{})})
	nested := o.json(manifest{Manifests: []descriptor{platform("linux", "other", other), platform("linux", runtime.GOARCH, o.json(m)), platform("windows", runtime.GOARCH, other)}})
	o.index(nested)
	i, err := import1(t, filepath.Join(t.TempDir(), "images"), o.dir, "x")
	if err != nil || i.Entries != 1 {
		t.Errorf("%+v %v", i, err)
	}
}

func TestAnImportThatIsKilledLeavesNothing(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	o := newOCI(t)
	var names []string
	for i := range 1000 {
		names = append(names, fmt.Sprintf("usr/%d/%d", i%50, i))
	}
	o.image(layer(t, names...), layer(t, "opt/x", "usr/1/.wh.1"))
	began := time.Now()
	start := func(into string) *exec.Cmd {
		c := exec.Command(os.Args[0])
		c.Env = append(os.Environ(), "TEST_IMPORT_INTO="+into, "TEST_IMPORT_FROM="+o.dir)
		c.Stderr = os.Stderr
		if err := c.Start(); err != nil {
			t.Fatal(err)
		}
		return c
	}
	if err := start(filepath.Join(t.TempDir(), "images")).Wait(); err != nil {
		t.Fatal(err)
	}
	whole := time.Since(began)
	killed := 0
	for range *kills {
		c := start(dir)
		time.Sleep(time.Duration(rand.Int64N(int64(whole))))
		c.Process.Signal(syscall.SIGKILL)
		c.Wait()
		if err := Recover(context.Background(), dir); err != nil {
			t.Fatal(err)
		}
		i, hold, err := image.Use(dir, "killed")
		if err == nil { // it was quicker: then it is whole
			files, _ := filepath.Glob(filepath.Join(i.Root(dir), "usr/*/*"))
			hold.Close()
			if len(files) != 999 {
				t.Fatalf("the image has %d files", len(files))
			}
			s := open(t, dir)
			if err := s.Remove("killed"); err != nil {
				t.Fatal(err)
			}
			s.Close()
		} else {
			killed++
		}
		checkEmpty(t, dir)
	}
	if killed == 0 {
		t.Error("none was killed in time")
	}
}

func TestWhatIsLeftBetweenTheStepsOfAnImportIsRemoved(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	archive := write(t, filepath.Join(t.TempDir(), "a"), layer(t, "usr/tool"))
	kept, err := import1(t, dir, archive, "kept")
	if err != nil {
		t.Fatal(err)
	}
	s := open(t, dir)
	s.begin()
	l, err := s.store.CreateLayer("", "", nil, "", false, nil) // no image has it
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.CreateImage("", []string{"nameless"}, l.ID, "", nil); err != nil { // it has no file
		t.Fatal(err)
	}
	above, err := s.store.CreateLayer("", kept.Layer, nil, "", false, nil)
	if err != nil {
		t.Fatal(err)
	}
	os.Mkdir(filepath.Join(filepath.Dir(above.ID), "x"), 0o700)
	write(t, filepath.Join(image.Graph(dir), image.Driver, "dir", strings.Repeat("a", 64), "f"), nil)
	write(t, filepath.Join(image.Names(dir), ".x.new"), nil)
	write(t, filepath.Join(dir, buildName, "system.tar"), nil)
	s.Close()
	if err := Recover(context.Background(), dir); err != nil {
		t.Fatal(err)
	}
	if got := trees(t, dir); !slices.Equal(got, []string{kept.Layer}) {
		t.Errorf("layers %v, want %s", got, kept.Layer)
	}
	if err := func() error { s := open(t, dir); defer s.Close(); return s.Remove("kept") }(); err != nil {
		t.Fatal(err)
	}
	checkEmpty(t, dir)
}

func TestAnImageInUseIsKept(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	i, err := import1(t, dir, write(t, filepath.Join(t.TempDir(), "a"), layer(t, "usr/tool")), "used")
	if err != nil {
		t.Fatal(err)
	}
	_, one, err := image.Use(dir, "used")
	if err != nil {
		t.Fatal(err)
	}
	_, other, err := image.Use(dir, "used")
	if err != nil {
		t.Fatal(err)
	}
	remove := func() error { s := open(t, dir); defer s.Close(); return s.Remove("used") }
	if list, err := image.List(dir); err != nil || len(list) != 1 || !list[0].InUse {
		t.Errorf("%+v %v", list, err)
	}
	one.Close()
	if err := remove(); err == nil || err.Error() != "a sandbox uses image used" {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(i.Root(dir), "usr/tool")); err != nil {
		t.Error(err)
	}
	other.Close()
	if list, err := image.List(dir); err != nil || len(list) != 1 || list[0].InUse {
		t.Errorf("%+v %v", list, err)
	}
	if err := remove(); err != nil {
		t.Error(err)
	}
	if _, _, err := image.Use(dir, "used"); !errors.As(err, new(*image.MissingError)) {
		t.Error(err)
	}
	checkEmpty(t, dir)
}

func TestTwoChangesWaitForOneAnother(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	s := open(t, dir)
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Millisecond)
	defer cancel()
	if _, err := Open(ctx, dir); err == nil || !strings.Contains(err.Error(), "another import") {
		t.Error(err)
	}
	s.begin()
	if err := Recover(context.Background(), dir); err != nil { // at work, and not interrupted
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, markerName)); err != nil {
		t.Error("what another is at was swept")
	}
	s.Close()
	checkEmpty(t, dir)
}

func TestAFileThatSomebodyElseWroteIsNoImage(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "images")
	i, err := import1(t, dir, write(t, filepath.Join(t.TempDir(), "a"), layer(t, "usr/tool")), "x")
	if err != nil {
		t.Fatal(err)
	}
	file := image.File(dir, "x")
	text, _ := os.ReadFile(file)
	for name, change := range map[string]func(){
		"others write it": func() { os.Chmod(file, 0o622) },
		"another name":    func() { os.WriteFile(file, bytes.Replace(text, []byte(`"x"`), []byte(`"y"`), 1), 0o600) },
		"leads out": func() {
			os.WriteFile(file, bytes.Replace(text, []byte(i.Layer), []byte("../../../../../../etc"), 1), 0o600)
		},
		"no JSON": func() { os.WriteFile(file, []byte("{"), 0o600) },
		"a link":  func() { os.Rename(file, file+"2"); os.Symlink(file+"2", file) },
		"a FIFO":  func() { os.Remove(file); unix.Mkfifo(file, 0o600) },
	} {
		change()
		if _, _, err := image.Use(dir, "x"); err == nil {
			t.Error(name, "was taken")
		}
		os.Remove(file)
		os.WriteFile(file, text, 0o600)
	}
	if _, _, err := image.Use(dir, "../x"); err == nil {
		t.Error("a name that leads out was taken")
	}
	if _, hold, err := image.Use(dir, "x"); err != nil {
		t.Error(err)
	} else {
		hold.Close()
	}
}

func TestASystemIsBuiltByTheProgramThatIsThere(t *testing.T) {
	dir, bin := filepath.Join(t.TempDir(), "images"), t.TempDir()
	t.Setenv("ARCHIVE", write(t, filepath.Join(bin, "archive"), layer(t, "usr/tool")))
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	program := func(script string) {
		write(t, filepath.Join(bin, "mmdebstrap"), []byte("#!/bin/sh\n"+script))
		os.Chmod(filepath.Join(bin, "mmdebstrap"), 0o755)
	}
	build := func(ctx context.Context, suite string) (*image.Image, error) {
		s := open(t, dir)
		defer s.Close()
		return s.Build(ctx, Base{Suite: suite, Mirror: "http://localhost/debian", Include: []string{"git", "perl"}}, "built", roomy())
	}
	for _, c := range []struct{ script, suite, want string }{
		{"echo first; echo nothing works >&2; exit 3", "bookworm", "mmdebstrap: exit status 3: first | nothing works"},
		{"exit 0", "bookworm", "system.tar: no such file"},
		{`cp "$ARCHIVE" "$5"`, "--hook", "not a suite"},
		{`cp "$ARCHIVE" "$5"`, "bookworm main", "not a suite"},
	} {
		program(c.script)
		if _, err := build(context.Background(), c.suite); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %s", err, c.want)
		}
		checkEmpty(t, dir)
	}
	program("sleep 60")
	ctx, cancel := context.WithTimeoutCause(context.Background(), 50*time.Millisecond, errors.New("time is over"))
	defer cancel()
	began := time.Now()
	if _, err := build(ctx, "bookworm"); err == nil || err.Error() != "time is over" || time.Since(began) > 30*time.Second {
		t.Error(err, time.Since(began))
	}
	checkEmpty(t, dir)
	program(`[ "$*" = "--include=git,perl --variant=minbase -- bookworm $5 http://localhost/debian" ] && cp "$ARCHIVE" "$5"`)
	i, err := build(context.Background(), "bookworm")
	if err != nil || i.Entries != 1 {
		t.Errorf("%+v %v", i, err)
	}
	if _, err := os.Lstat(filepath.Join(dir, buildName)); err == nil {
		t.Error("what was built is there twice")
	}
}
