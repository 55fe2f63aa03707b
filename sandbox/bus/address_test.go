package bus

import (
	"maps"
	"math/rand/v2"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

func TestBusAddressesAreReadAsTheSpecificationHasThem(t *testing.T) {
	for text, want := range map[string]string{
		"unix:path=/run/user/1000/bus":           "unix path=/run/user/1000/bus",
		"unix:path=/a,guid=0123456789abcdef":     "unix guid=0123456789abcdef path=/a",
		"unix:path=/with%20space%2c%3B":          "unix path=/with space,;",
		"unix:abstract=/tmp/dbus-x,guid=1;":      "unix abstract=/tmp/dbus-x guid=1",
		"unix:runtime=yes":                       "unix runtime=yes",
		"unix:path=/a,":                          "unix path=/a",
		"unix:path=%2fb%2Fc%61":                  "unix path=/b/ca",
		`unix:path=-_/.\*`:                       `unix path=-_/.\*`,
		"tcp:host=localhost,port=1;unix:path=/b": "tcp host=localhost port=1|unix path=/b",
		"autolaunch:":                            "autolaunch",
		"nonce-tcp:noncefile=%2Ftmp%2Fx":         "nonce-tcp noncefile=/tmp/x",
		"unix:":                                  "unix",
		"":                                       "error",
		"unix":                                   "error",
		"unix:path":                              "error",
		"unix:path=":                             "error",
		":path=/a":                               "error",
		"unix:=/a":                               "error",
		"unix:path=/a,,guid=1":                   "error",
		"unix:path=/a,path=/b":                   "error",
		"unix:path=/a;;unix:path=/b":             "error",
		";unix:path=/b":                          "error",
		"unix:path=%2":                           "error",
		"unix:path=%":                            "error",
		"unix:path=%zz":                          "error",
		"unix:path=%+1":                          "error",
		"unix:path=/a=b":                         "error",
		"unix:path=/~a":                          "error",
		"unix:path=/with space":                  "error",
		"unix:path=/a\n":                         "error",
		"unix:path=/\xc3\xa9":                    "error",
		strings.Repeat("unix:path=/a;", 33):      "error",
		"unix:path=/" + strings.Repeat("x", 16<<10):  "error",
		strings.Repeat("unix:path=/a;", 2) + "x:y=z": "unix path=/a|unix path=/a|x y=z",
	} {
		list, err := ParseAddress(text)
		var words []string
		for _, a := range list {
			word := a.Transport
			for _, key := range slices.Sorted(maps.Keys(a.Keys)) {
				word += " " + key + "=" + a.Keys[key]
			}
			words = append(words, word)
		}
		got := strings.Join(words, "|")
		if err != nil {
			got = "error"
		}
		if got != want {
			t.Errorf("%.60q: %q %v, want %q", text, got, err, want)
		}
	}
}

func TestAnAddressMeansASocketOrSaysWhyNot(t *testing.T) {
	for text, want := range map[string]string{
		"unix:path=/run/user/1000/bus,guid=1": "/run/user/1000/bus",
		"unix:abstract=/tmp/x":                "@/tmp/x",
		"unix:runtime=yes":                    "/run/user/7/bus",
		"unix:runtime=no":                     "can only be yes",
		"unix:path=relative":                  "not absolute",
		"unix:path=/a%00b":                    "not absolute",
		"unix:path=/a,abstract=b":             "must have one of",
		"unix:guid=1":                         "must have one of",
		"unix:":                               "must have one of",
		"unix:tmpdir=/tmp":                    "for a server",
		"unix:dir=/tmp":                       "for a server",
		"tcp:host=localhost,port=1":           "tcp is not used",
		"unixexec:path=/bin/sh,argv1=-c":      "unixexec is not used",
		"autolaunch:":                         "autolaunch is not used",
	} {
		list, err := ParseAddress(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		server, why := list[0].Server("/run/user/7")
		if why == "" {
			why = server.String()
		}
		if !strings.Contains(why, want) {
			t.Errorf("%s: %s, want %s", text, why, want)
		}
	}
	if _, why := (Address{Transport: "unix", Keys: map[string]string{"runtime": "yes"}}).Server(""); why == "" {
		t.Error("runtime=yes without XDG_RUNTIME_DIR led somewhere")
	}
}

var addressSeeds = []string{"unix:path=/a,guid=0", "unix:abstract=x%20y;tcp:host=h", "unix:runtime=yes;", "autolaunch:", "unix:path=%2f%00", "a:b=%", ";", ":"}

func FuzzBusAddress(f *testing.F) {
	for _, seed := range addressSeeds {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		list, err := ParseAddress(text)
		if err != nil {
			if list != nil {
				t.Errorf("%q: an error and addresses", text)
			}
			return
		}
		if len(list) == 0 || len(list) > maxAddresses || len(text) > maxAddressText {
			t.Errorf("%q: %d addresses", text, len(list))
		}
		var written []string
		for _, a := range list {
			written = append(written, a.String())
			server, why := a.Server("/run/user/1")
			if (why == "") != (server.Path != "" || server.Abstract != "") {
				t.Errorf("%s: %+v %q", a, server, why)
			}
			if server.Path != "" && (server.Path[0] != '/' || strings.IndexByte(server.Path, 0) >= 0) {
				t.Errorf("%s leads to %q", a, server.Path)
			}
		}
		again, err := ParseAddress(strings.Join(written, ";"))
		if err != nil || !slices.EqualFunc(list, again, func(a, b Address) bool {
			return a.Transport == b.Transport && maps.Equal(a.Keys, b.Keys)
		}) {
			t.Errorf("%q was written as %q and read as %v, %v", text, written, again, err)
		}
	})
}

// TestLibdbusReadsAddressesTheSame asks libdbus about addresses that are put together at random. We
// are the stricter ones about keys only: twice the same, and strange ones.
func TestLibdbusReadsAddressesTheSame(t *testing.T) {
	if _, err := exec.LookPath("dbus-send"); err != nil {
		t.Skip("no dbus-send (dbus-bin)")
	}
	pieces := []string{"unix:", "tcp:", "path=", "guid=", "/a", "b", "%41", "%2", "%zz", ",", ";", "=", " ", "~", `\`, "*", ".", "\x80", ":"}
	random := rand.New(rand.NewPCG(1, 2))
	rounds := 150
	if testing.Short() {
		rounds = 50
	}
	accepted := 0
	for range rounds {
		text := "unix:path=/nowhere"
		for range random.IntN(6) {
			text += pieces[random.IntN(len(pieces))]
		}
		_, ours := ParseAddress(text)
		said, _ := exec.Command("dbus-send", "--bus="+text, "--dest=a.b", "/", "a.b").CombinedOutput()
		theirs := !strings.Contains(string(said), "should have been escaped") && !strings.Contains(string(said), "'=' character not found") &&
			!strings.Contains(string(said), "percent character") && !strings.Contains(string(said), "does not contain a colon")
		if ours == nil {
			accepted++
		}
		if (ours == nil) != theirs && !(theirs && (strings.Contains(ours.Error(), "twice") || strings.Contains(ours.Error(), "no name of a transport") || strings.Contains(ours.Error(), "is not key=value"))) {
			t.Errorf("%q: %v, libdbus: %s", text, ours, said)
		}
	}
	if accepted < rounds/20 || accepted == rounds {
		t.Errorf("%d of %d were accepted: they show nothing", accepted, rounds)
	}
}
