package unpack

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/clairun/clai-sandbox/sandbox/image"
)

// entry is one of an archive: "name" is a file, "name/" a directory, "name -> text" a symbolic
// link, "name => target" a hard link, and "name c", "name b" and "name p" are devices and a FIFO.
func header(entry string) *tar.Header {
	h := &tar.Header{Name: entry, Typeflag: tar.TypeReg, Mode: 0o644, ModTime: time.Unix(1e9, 0)}
	if name, text, is := strings.Cut(entry, " -> "); is {
		h.Name, h.Linkname, h.Typeflag = name, text, tar.TypeSymlink
	} else if name, text, is := strings.Cut(entry, " => "); is {
		h.Name, h.Linkname, h.Typeflag = name, text, tar.TypeLink
	} else if strings.HasSuffix(entry, "/") {
		h.Typeflag, h.Mode = tar.TypeDir, 0o755
	} else {
		for suffix, kind := range map[string]byte{" c": tar.TypeChar, " b": tar.TypeBlock, " p": tar.TypeFifo} {
			if name, is := strings.CutSuffix(entry, suffix); is {
				h.Name, h.Typeflag = name, kind
			}
		}
	}
	if h.Typeflag == tar.TypeReg {
		h.Size = int64(len(h.Name))
	}
	return h
}

func archive(t testing.TB, entries ...string) []byte {
	t.Helper()
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for _, e := range entries {
		h := header(e)
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if h.Typeflag == tar.TypeReg {
			w.Write([]byte(h.Name)) // a file holds its own name
		}
	}
	w.Close()
	return b.Bytes()
}

// place is a root with something beside it that an archive may want to reach.
func place(t testing.TB) (dir string, root int) {
	t.Helper()
	dir = t.TempDir()
	for _, name := range []string{"root", "outside"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "outside/file"), []byte("as it was"), 0o644); err != nil {
		t.Fatal(err)
	}
	root, err := unix.Open(filepath.Join(dir, "root"), unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(root) })
	return dir, root
}

// checkOutside fails if anything but the root is not as it was.
func checkOutside(t testing.TB, dir string) {
	t.Helper()
	var found []string
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		rel, _ := filepath.Rel(dir, path)
		if d != nil && d.IsDir() && rel == "root" {
			found = append(found, rel)
			return fs.SkipDir
		}
		found = append(found, rel)
		return nil
	})
	if !slices.Equal(found, []string{".", "outside", "outside/file", "root"}) {
		t.Errorf("outside of the root: %q", found)
	}
	var stat unix.Stat_t
	text, err := os.ReadFile(filepath.Join(dir, "outside/file"))
	if unix.Lstat(filepath.Join(dir, "outside/file"), &stat) != nil || stat.Nlink != 1 || stat.Mode&0o7777 != 0o644 || err != nil || string(text) != "as it was" {
		t.Errorf("the file outside: %q, %d links, mode %o", text, stat.Nlink, stat.Mode)
	}
}

func large() *Budget { return &Budget{Bytes: 1 << 30, Entries: 100_000} }

func into(root int, text []byte, layer bool, budget *Budget, report *image.Report) error {
	ctx := context.Background()
	return Into(ctx, root, tar.NewReader(budget.Reader(ctx, bytes.NewReader(text))), layer, budget, report)
}

// tree lists what is below a directory, a file with what it holds.
func tree(dir string) []string {
	var list []string
	filepath.WalkDir(dir, func(path string, d fs.DirEntry, _ error) error {
		rel, _ := filepath.Rel(dir, path)
		switch {
		case rel == ".":
		case d.IsDir():
			list = append(list, rel+"/")
		case d.Type() == fs.ModeSymlink:
			text, _ := os.Readlink(path)
			list = append(list, rel+" -> "+text)
		default:
			text, _ := os.ReadFile(path)
			if string(text) != rel {
				rel += "=" + string(text)
			}
			list = append(list, rel)
		}
		return nil
	})
	return list
}

func TestNothingOfAHostileArchiveLeavesTheRoot(t *testing.T) {
	deep := strings.Repeat("d/", 10_000) + "f"
	for name, c := range map[string]struct {
		entries []string
		want    string // of the error; empty: none
		is      []string
	}{
		"up":                       {[]string{"../outside/file"}, `entry "../outside/file": its name leads out`, nil},
		"up in the middle":         {[]string{"a/../../outside/new"}, "leads out", nil},
		"dots that stay":           {[]string{"./a/./b"}, "", []string{"a/", "a/b=./a/./b"}},
		"absolute":                 {[]string{"/outside/file"}, "an absolute name", nil},
		"hard link up":             {[]string{"x => ../outside/file"}, `entry "x": a hard link to "../outside/file"`, nil},
		"hard link absolute":       {[]string{"x => /etc/passwd"}, "not in the image", nil},
		"hard link through a link": {[]string{"out -> ../outside", "x => out/file"}, "a hard link to", nil},
		"hard link to a directory": {[]string{"d/", "x => d"}, "no file", nil},
		"hard link to nothing":     {[]string{"x => y"}, "a hard link to", nil},
		"hard link to itself":      {[]string{"x", "x => x"}, "", []string{"x"}},
		"hard link to a link":      {[]string{"l -> ../outside/file", "x => l", "x"}, "", []string{"l -> ../outside/file", "x"}},
		"link, then file":          {[]string{"out -> ../outside", "out/new"}, `entry "out/new": its name goes through a symbolic link`, nil},
		"absolute link, then file": {[]string{"out -> /tmp", "out/new"}, "through a symbolic link", nil},
		"link, then the same name": {[]string{"out -> ../outside/file", "out"}, "", []string{"out"}},
		"link, then directory":     {[]string{"out -> ../outside", "out/", "out/new"}, "", []string{"out/", "out/new"}},
		"link, then device":        {[]string{"dev -> ../outside", "dev/null c"}, "", []string{"dev -> ../outside"}},
		"link chain":               {[]string{"a -> b", "b -> ../outside", "a/new"}, "through a symbolic link", nil},
		"directory, then link":     {[]string{"d/", "d/f", "d -> ../outside", "d/g"}, "through a symbolic link", nil},
		"file, then below it":      {[]string{"f", "f/g"}, "no directory", nil},
		"whiteout in no layer":     {[]string{".wh.x"}, "a whiteout", nil},
		"device":                   {[]string{"usr/sda b"}, `entry "usr/sda": a device`, nil},
		"device in dev":            {[]string{"dev/null c", "dev/x"}, "", []string{"dev/", "dev/x"}},
		"fifo":                     {[]string{"home/p p"}, "a FIFO", nil},
		"name of an option":        {[]string{"-rf", "--help/"}, "", []string{"--help/", "-rf"}},
		"no UTF-8":                 {[]string{"a\xff\xfeb"}, "", []string{"a\xff\xfeb"}},
		"control characters":       {[]string{"\x1b[2J/../x"}, `entry "\x1b[2J/../x"`, nil},
		"10,000 components":        {[]string{deep}, "its name is too long", nil},
		"1,000 components":         {[]string{strings.Repeat("d/", 1000) + "f"}, "directories deep", nil},
		"long component":           {[]string{strings.Repeat("x", 256)}, "too long", nil},
		"no name":                  {[]string{"./", "."}, "it has no name", nil},
		"empty link":               {[]string{"l -> "}, "empty", nil},
	} {
		t.Run(name, func(t *testing.T) {
			dir, root := place(t)
			var report image.Report
			err := into(root, archive(t, c.entries...), false, large(), &report)
			checkOutside(t, dir)
			switch {
			case c.want == "" && err != nil:
				t.Fatal(err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Fatalf("error %v, want %s", err, c.want)
			case c.want == "":
				if got := tree(filepath.Join(dir, "root")); !slices.Equal(got, c.is) {
					t.Errorf("there is %q, want %q", got, c.is)
				}
			}
		})
	}
}

func TestAWhiteoutTakesAwayWhatEarlierLayersHaveAndNothingElse(t *testing.T) {
	for name, c := range map[string]struct {
		entries []string
		want    string
		is      []string
	}{
		"a file":                  {[]string{"a/.wh.f"}, "", []string{"a/", "a/b/", "a/b/g", "l -> ../outside"}},
		"a directory":             {[]string{".wh.a"}, "", []string{"l -> ../outside"}},
		"nothing":                 {[]string{".wh.nothing", "nowhere/.wh.x"}, "", []string{"a/", "a/b/", "a/b/g", "a/f", "l -> ../outside"}},
		"opaque":                  {[]string{"a/", "a/.wh..wh..opq", "a/new"}, "", []string{"a/", "a/new", "l -> ../outside"}},
		"opaque at the end":       {[]string{"a/new", "a/b/h", "a/.wh..wh..opq"}, "", []string{"a/", "a/b/", "a/b/h", "a/new", "l -> ../outside"}},
		"opaque root":             {[]string{".wh..wh..opq"}, "", nil},
		"of the same layer":       {[]string{"a/new", "a/.wh.new"}, "", []string{"a/", "a/b/", "a/b/g", "a/f", "a/new", "l -> ../outside"}},
		"made anew":               {[]string{"a/.wh.b", "a/b/h"}, "", []string{"a/", "a/b/", "a/b/h", "a/f", "l -> ../outside"}},
		"a link itself":           {[]string{".wh.l"}, "", []string{"a/", "a/b/", "a/b/g", "a/f"}},
		"through a link":          {[]string{"l/.wh.file"}, `entry "l/.wh.file"`, nil},
		"opaque through a link":   {[]string{"l/.wh..wh..opq"}, "remove what it stands for", nil},
		"of the directory":        {[]string{"a/.wh.."}, "remove what it stands for", nil},
		"of the one above":        {[]string{"a/.wh..."}, "remove what it stands for", nil},
		"of no name":              {[]string{"a/.wh."}, "remove what it stands for", nil},
		"of a whiteout":           {[]string{"a/.wh..wh.f"}, "remove what it stands for", nil},
		"up":                      {[]string{"a/../../outside/.wh.file"}, "leads out", nil},
		"a file over a tree":      {[]string{"a"}, "", []string{"a", "l -> ../outside"}},
		"a tree over a file":      {[]string{"a/f/", "a/f/x"}, "", []string{"a/", "a/b/", "a/b/g", "a/f/", "a/f/x", "l -> ../outside"}},
		"a directory, for a link": {[]string{"l/", "l/x"}, "", []string{"a/", "a/b/", "a/b/g", "a/f", "l/", "l/x"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir, root := place(t)
			var report image.Report
			if err := into(root, archive(t, "a/", "a/f", "a/b/", "a/b/g", "l -> ../outside"), true, large(), &report); err != nil {
				t.Fatal(err)
			}
			err := into(root, archive(t, c.entries...), true, large(), &report)
			checkOutside(t, dir)
			if (err != nil) != (c.want != "") || err != nil && !strings.Contains(err.Error(), c.want) {
				t.Fatalf("error %v, want %q", err, c.want)
			}
			if got := tree(filepath.Join(dir, "root")); c.want == "" && !slices.Equal(got, c.is) {
				t.Errorf("there is %q, want %q", got, c.is)
			}
		})
	}
}

func TestRightsAreTakenOffAndTold(t *testing.T) {
	dir, root := place(t)
	var b bytes.Buffer
	w := tar.NewWriter(&b)
	for name, mode := range map[string]int64{"su": 0o4755, "sg": 0o2755, "plain": 0o755, "dir/": 0o7000} {
		w.WriteHeader(&tar.Header{Name: name, Mode: mode, Typeflag: map[bool]byte{true: tar.TypeDir, false: tar.TypeReg}[name == "dir/"]})
	}
	w.WriteHeader(&tar.Header{Name: "ping", Mode: 0o755, PAXRecords: map[string]string{"SCHILY.xattr.security.capability": "\x01", "SCHILY.xattr.user.overlay.opaque": "y"}})
	w.WriteHeader(&tar.Header{Name: "run/control", Typeflag: tar.TypeFifo})
	w.Close()
	var report image.Report
	if err := into(root, b.Bytes(), false, large(), &report); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]uint32{"su": 0o755, "sg": 0o755, "plain": 0o755, "ping": 0o755, "dir": 0o700} {
		var stat unix.Stat_t
		path := filepath.Join(dir, "root", name)
		if err := unix.Lstat(path, &stat); err != nil || stat.Mode&0o7777 != want || int(stat.Uid) != os.Geteuid() {
			t.Errorf("%s: mode %o of %d, %v", name, stat.Mode, stat.Uid, err)
		}
		if n, _ := unix.Llistxattr(path, make([]byte, 100)); n > 0 {
			t.Errorf("%s has attributes", name)
		}
	}
	slices.Sort(report.Privileged.First)
	if !slices.Equal(report.Privileged.First, []string{"ping", "sg", "su"}) || report.Privileged.Count != 3 || report.LeftOut.Count != 1 {
		t.Errorf("told: %+v", report)
	}
}

func TestAnImportHasAnEnd(t *testing.T) {
	sparse := func() Source { return &made{headers: []*tar.Header{{Name: "f", Typeflag: tar.TypeReg, Size: 4 << 30}}} }
	for name, c := range map[string]struct {
		source Source
		budget Budget
		want   string
	}{
		"entries":             {tar.NewReader(bytes.NewReader(archive(t, "a", "b", "c"))), Budget{Bytes: 100, Entries: 2}, "more than 2 entries"},
		"directories between": {tar.NewReader(bytes.NewReader(archive(t, strings.Repeat("d/", 200)+"f"))), Budget{Bytes: 1000, Entries: 100}, "more than 100 entries"},
		"bytes":               {tar.NewReader(bytes.NewReader(archive(t, "abc", "def"))), Budget{Bytes: 5, Entries: 9}, "more than 5 bytes"},
		"a large hole":        {sparse(), Budget{Bytes: 1 << 30, Entries: 9}, "more than 1073741824 bytes"},
	} {
		_, root := place(t)
		err := Into(context.Background(), root, c.source, false, &c.budget, &image.Report{})
		var limit *LimitError
		if !errors.As(err, &limit) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// What an archive says about its size counts for nothing: the stream itself is counted.
	_, root := place(t)
	budget := &Budget{Bytes: 4096, Entries: 9}
	if err := into(root, append(archive(t, "a"), make([]byte, 1<<20)...), false, budget, &image.Report{}); err != nil {
		t.Error("what comes behind the end was read:", err)
	}
	if _, err := io.Copy(io.Discard, (&Budget{Bytes: 4096}).Reader(context.Background(), bytes.NewReader(make([]byte, 1<<20)))); !errors.As(err, new(*LimitError)) {
		t.Error("a stream without an end:", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errors.New("time is over"))
	if err := Into(ctx, root, sparse(), false, large(), &image.Report{}); err == nil || err.Error() != "time is over" {
		t.Error("the end of time:", err)
	}
}

// made is a source whose files are nothing but zeros.
type made struct{ headers []*tar.Header }

func (m *made) Next() (*tar.Header, error) {
	if len(m.headers) == 0 {
		return nil, io.EOF
	}
	h := m.headers[0]
	m.headers = m.headers[1:]
	return h, nil
}

func (m *made) Read(p []byte) (int, error) { clear0(p); return len(p), nil }

func clear0(p []byte) {
	for i := range p {
		p[i] = 0
	}
}

func TestALargeHoleTakesNoRoom(t *testing.T) {
	dir, root := place(t)
	m := &made{headers: []*tar.Header{{Name: "f", Typeflag: tar.TypeReg, Size: 256 << 20}}}
	if err := Into(context.Background(), root, m, false, large(), &image.Report{}); err != nil {
		t.Fatal(err)
	}
	var stat unix.Stat_t
	if err := unix.Lstat(filepath.Join(dir, "root/f"), &stat); err != nil || stat.Size != 256<<20 || stat.Blocks > 100 {
		t.Errorf("%d bytes in %d blocks, %v", stat.Size, stat.Blocks, err)
	}
}

func TestManyLinksAreTaken(t *testing.T) {
	dir, root := place(t)
	m := &made{}
	add := func(h *tar.Header) { m.headers = append(m.headers, h) }
	add(&tar.Header{Name: "f0", Typeflag: tar.TypeReg})
	const n = 40_000
	for i := 1; i <= n; i++ { // each of the one before
		add(&tar.Header{Name: fmt.Sprintf("f%d", i), Linkname: fmt.Sprintf("f%d", i-1), Typeflag: tar.TypeLink})
	}
	for i := 1; i <= 1000; i++ {
		add(&tar.Header{Name: fmt.Sprintf("l%d", i), Linkname: fmt.Sprintf("l%d", i-1), Typeflag: tar.TypeSymlink})
	}
	add(&tar.Header{Name: "l1000/x", Typeflag: tar.TypeReg})
	err := Into(context.Background(), root, m, false, large(), &image.Report{})
	if err == nil || !strings.Contains(err.Error(), `entry "l1000/x": its name goes through a symbolic link`) {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(dir, "root", fmt.Sprintf("f%d", n))); err != nil {
		t.Error(err)
	}
}

func TestADirectoryComesOutAsItIs(t *testing.T) {
	dir, root := place(t)
	from := filepath.Join(dir, "root")
	if err := into(root, archive(t, "a/", "a/f", "a/-rf", "l -> /etc", "h => a/f", "a/b/c/"), false, large(), &image.Report{}); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mkfifo(filepath.Join(from, "a/pipe"), 0o600); err != nil {
		t.Fatal(err)
	}
	take := func() (string, error) {
		to, target := place(t)
		fd, err := Beneath(root, ".", unix.O_RDONLY|unix.O_DIRECTORY)
		if err != nil {
			t.Fatal(err)
		}
		source, err := NewDirectory(fd)
		if err != nil {
			t.Fatal(err)
		}
		defer source.Close()
		return filepath.Join(to, "root"), Into(context.Background(), target, source, false, large(), &image.Report{})
	}
	if _, err := take(); err == nil || err.Error() != `entry "a/pipe": a FIFO outside of /dev and /run has no place in an image` {
		t.Error(err)
	}
	os.Remove(filepath.Join(from, "a/pipe"))
	to, err := take()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := tree(to), tree(from); !slices.Equal(got, want) {
		t.Errorf("there is %q, want %q", got, want)
	}
	one, _ := os.Stat(filepath.Join(to, "h"))
	other, _ := os.Stat(filepath.Join(to, "a/f"))
	if !os.SameFile(one, other) {
		t.Error("hard links are no links any more")
	}
	// The next layer has the same files.
	clone, target := place(t)
	fd, _ := unix.Open(to, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	defer unix.Close(fd)
	if err := Clone(context.Background(), fd, target); err != nil {
		t.Fatal(err)
	}
	if got, want := tree(filepath.Join(clone, "root")), tree(from); !slices.Equal(got, want) {
		t.Errorf("cloned is %q, want %q", got, want)
	}
	// And what it changes is its own.
	if err := into(target, archive(t, "a/f"), true, large(), &image.Report{}); err != nil {
		t.Fatal(err)
	}
	changed, _ := os.Stat(filepath.Join(clone, "root/a/f"))
	if os.SameFile(changed, other) {
		t.Error("a layer wrote the file of the one below")
	}
}

func FuzzAnArchiveStaysInTheRoot(f *testing.F) {
	for _, entries := range [][]string{{"a/", "a/f"}, {"out -> ../outside", "out/new"}, {"x => ../outside/file"}, {".wh.x", "a/.wh..wh..opq"}, {"../x"}, {"dev/null c"}} {
		f.Add(archive(f, entries...), true)
	}
	f.Fuzz(func(t *testing.T, text []byte, layer bool) {
		dir, root := place(t)
		if err := into(root, archive(t, "a/", "a/f", "l -> ../outside", "m -> /"), true, large(), &image.Report{}); err != nil {
			t.Fatal(err)
		}
		into(root, text, layer, &Budget{Bytes: 1 << 20, Entries: 300}, &image.Report{})
		checkOutside(t, dir)
		filepath.WalkDir(filepath.Join(dir, "root"), func(path string, d fs.DirEntry, err error) error {
			if err == nil && d.Type()&(fs.ModeDevice|fs.ModeNamedPipe|fs.ModeSocket) != 0 {
				t.Errorf("%q is a %v", path, d.Type())
			}
			if info, err := os.Lstat(path); err == nil && info.Mode()&(fs.ModeSetuid|fs.ModeSetgid|fs.ModeSticky) != 0 {
				t.Errorf("%q has mode %v", path, info.Mode())
			}
			return nil
		})
	})
}
