package profile

import "path/filepath"

// Caches says what becomes of the directories in a home in which tools keep what they download and
// build, where the home is readable. The zero value is copy on write.
type Caches uint8

const (
	CachesCopyOnWrite Caches = iota // the host's are warm, and what a command writes there reaches nobody else
	CachesPrivate                   // the agent has its own, empty at first
	CachesOff                       // they are read-only like the rest of the home
	CachesReadWrite                 // the host's own, as far as they exist: what a command writes there, others execute
)

var cachesNames = []string{"copy_on_write", "private", "off", "read_write"}

func (c Caches) String() string { return nameOf(cachesNames, int(c)) }

func (c Caches) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

func (c *Caches) UnmarshalText(text []byte) error {
	switch string(text) { // as short as with an access
	case "cow":
		text = []byte("copy_on_write")
	case "rw":
		text = []byte("read_write")
	}
	i, err := valueOf(cachesNames, text)
	if err == nil {
		*c = Caches(i)
	}
	return err
}

// A CachePath is a directory of a home in which tools keep what they download, unpack, build and
// install for its person. None holds what a person wrote.
type CachePath struct {
	Path string
	// Made says that the agent gets an empty one where the home has none: tools fail that cannot
	// make theirs. The others are shown where they are.
	Made bool
}

// cacheDirectories are those that have a CachePath, below the home.
var cacheDirectories = []CachePath{
	{".cache", true}, // XDG_CACHE_HOME: go build, pip, uv, yarn 1, pnpm, composer, deno, pre-commit, playwright, Hugging Face, node-gyp
	{"go", true},     // GOPATH: modules, and what go install makes
	{".npm", true}, {".yarn", true}, {".bun", true}, {".local/share/pnpm", true}, {".local/state/pnpm", true},
	{".local/share/uv", true},
	{".cargo", true}, {".rustup", false},
	{".m2", true}, {".gradle", true}, {".ivy2", false}, {".sbt", false},
	{".bundle", true}, {".gem", false}, {".local/share/gem", true},
	{".composer", false},
	{".nuget", true}, {".dotnet", true}, {".local/share/NuGet", false},
	{".ccache", false}, {".pub-cache", false}, {".hex", false}, {".mix", false}, {".cabal", false}, {".stack", false}, {".julia", false},
	{".conan2", false}, {".vcpkg", false}, {".electron", false}, {".config/go/telemetry", false},
}

// cachePaths are the directories of the caches in a home.
func cachePaths(home string) []CachePath {
	list := make([]CachePath, len(cacheDirectories))
	for i, c := range cacheDirectories {
		list[i] = CachePath{filepath.Join(home, c.Path), c.Made}
	}
	return list
}
