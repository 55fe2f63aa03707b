package sandbox

import "github.com/clairun/clai-sandbox/sandbox/links/linkstest"

type fakeTree = linkstest.Tree

func newFakeTree(lines ...string) fakeTree { return linkstest.New(lines...) }

// usual is what every host in these tests has.
var usual = []string{"/usr/bin/", "/usr/lib/", "/usr/lib64/", "/usr/sbin/", "/etc/passwd", "/sys/", "/tmp/", "/var/", "/dev/null c",
	"/bin -> usr/bin", "/sbin -> usr/sbin", "/lib -> usr/lib", "/lib64 -> usr/lib64", "/home/u/work/"}
