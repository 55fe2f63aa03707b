package profile

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"
)

func TestLimitsAreReadWithUnitsAndBounds(t *testing.T) {
	for _, c := range []struct {
		text   string
		limit  Limit
		amount int64
		want   string // of the error
	}{
		{"memory=2GiB", LimitMemory, 2 << 30, ""},
		{"memory=16777216", LimitMemory, 16 << 20, ""},
		{"memory=1024TiB", LimitMemory, 1 << 50, ""},
		{"memory=0", LimitMemory, 0, ""},
		{"memory=0GiB", LimitMemory, 0, ""},
		{"processes=16", LimitProcesses, 16, ""},
		{"cpuSeconds=1", LimitCPU, 1, ""},
		{"cpuPercent=150", LimitCPUPercent, 150, ""},
		{"cpuSeconds=2147483647", LimitCPU, math.MaxInt32, ""},
		{"fileSize=1MiB", LimitFileSize, 1 << 20, ""},
		{"openFiles=1048576", LimitOpenFiles, 1 << 20, ""},
		{"outputBytes=1", LimitOutput, 1, ""},
		{"outputBytes=64KiB", LimitOutput, 64 << 10, ""},

		{"memory=16777215", 0, 0, "--limit memory: must be from 16MiB to 1024TiB, or 0 for no limit"},
		{"memory=1025TiB", 0, 0, "must be from 16MiB"},
		{"memory=16777216TiB", 0, 0, "is not a size"}, // it would come round to 0, which is no limit
		{"memory=9223372036854775808", 0, 0, "is not a size"},
		{"memory=18446744073709551616", 0, 0, "is not a size"},
		{"memory=2GB", 0, 0, `"2GB" is not a size, as 512MiB, 2GiB or a number of bytes`},
		{"memory=2gib", 0, 0, "is not a size"},
		{"memory=2 GiB", 0, 0, "is not a size"},
		{"memory=GiB", 0, 0, "is not a size"},
		{"memory=1KiBMiB", 0, 0, "is not a size"},
		{"memory=+2GiB", 0, 0, "is not a size"},
		{"memory=-1", 0, 0, "is not a size"},
		{"memory=1.5GiB", 0, 0, "is not a size"},
		{"memory=0x20000000", 0, 0, "is not a size"},
		{"memory=1_000_000_000", 0, 0, "is not a size"},
		{"memory=", 0, 0, "is not a size"},
		{"memory=unlimited", 0, 0, "is not a size"},
		{"memory=\x1b[2J", 0, 0, `"\x1b[2J" is not a size`},
		{"processes=15", 0, 0, "--limit processes: must be from 16 to 4194304"},
		{"processes=4194305", 0, 0, "must be from"},
		{"processes=1KiB", 0, 0, `"1KiB" is not a whole number`},
		{"processes=+20", 0, 0, "is not a whole number"},
		{"cpuSeconds=5s", 0, 0, "is not a whole number"},
		{"cpuSeconds=2147483648", 0, 0, "must be from"},
		{"fileSize=1048575", 0, 0, "must be from 1MiB"},
		{"openFiles=63", 0, 0, "must be from 64"},
		{"memory", 0, 0, `--limit "memory": write NAME=AMOUNT, such as memory=2GiB`},
		{"=5", 0, 0, "is not memory, processes, cpuSeconds, cpuPercent, fileSize, openFiles or outputBytes"},
		{"Memory=2GiB", 0, 0, `--limit: "Memory" is not memory, `},
		{"core=0", 0, 0, `"core" is not`},
	} {
		p, err := Resolve(&Config{}, caller(), Request{Limits: []string{c.text}})
		switch {
		case c.want != "":
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%q: %v", c.text, err)
			}
		case err != nil || p.Limits.Of(c.limit) != c.amount:
			t.Errorf("%q: %d, %v", c.text, p.Limits.Of(c.limit), err)
		}
	}
}

func TestAnAmountIsWrittenAsItIsRead(t *testing.T) {
	for i := range limitCount {
		row := limitTable[i]
		for _, n := range []int64{0, row.least, row.most, 1 << 20, 1<<20 + 1, 1536 << 10, 3 << 30} {
			if row.name == "openFiles" && n > row.most || row.name == "processes" && n > row.most {
				continue
			}
			if back, err := i.parse(i.Amount(n)); err != nil && i.check(n) == nil || err == nil && back != n {
				t.Errorf("%s: %d is written %s and read %d, %v", i, n, i.Amount(n), back, err)
			}
		}
	}
}

func TestTheMoreSpecificLimitHolds(t *testing.T) {
	config := `{"defaults": {"execution": {"limits": {"memory": "1GiB", "processes": 100, "cpuSeconds": 10, "cpuPercent": 50, "fileSize": "2MiB", "openFiles": 128, "outputBytes": "1KiB"}}},
		"agents": {"main": {"execution": {"limits": {"memory": "3GiB", "processes": 0}}}}}`
	p, err := resolve(t, config, Request{Limits: []string{"cpuSeconds=20", "fileSize=4MiB", "fileSize=0"}})
	want := Amounts{LimitMemory: 3 << 30, LimitCPU: 20, LimitCPUPercent: 50, LimitOpenFiles: 128, LimitOutput: 1 << 10}
	if err != nil || p.Limits.Amounts != want || p.Limits.Timeout != 0 {
		t.Errorf("%+v, %v", p.Limits, err)
	}
	p, err = resolve(t, "{}", Request{Timeout: time.Second})
	if err != nil || p.Limits != (Limits{Timeout: time.Second}) {
		t.Errorf("nobody said anything, but %+v, %v", p.Limits, err)
	}
}

func TestALimitOutOfBoundsIsToldWithItsLine(t *testing.T) {
	for limits, want := range map[string]string{
		`"memory": "1MiB"`:       "must be from 16MiB to 1024TiB, or 0 for no limit",
		`"memory": 1073741824`:   "must be a string",
		`"processes": "100"`:     "must be a whole number",
		`"processes": 3`:         "must be from 16 to 4194304, or 0 for no limit",
		`"cpuSeconds": -1`:       "must be a whole number from 0",
		`"fileSize": "1KiB"`:     "must be from 1MiB",
		`"openFiles": 3`:         "must be from 64",
		`"openFiles": 1048577`:   "must be from 64",
		`"outputBytes": "lots"`:  "is not a size",
		`"outputBytes": "-1KiB"`: "is not a size",
	} {
		_, err := load(t, "", "{\"defaults\": {\"execution\": {\"limits\": {\n"+limits+"}}}}")
		var mistake *ConfigError
		if !errors.As(err, &mistake) || mistake.Line != 2 || !strings.Contains(mistake.Why, want) || !strings.HasPrefix(mistake.Key, "defaults.execution.limits.") {
			t.Errorf("%s: %v", limits, err)
		}
	}
}

func FuzzSizes(f *testing.F) {
	for _, text := range []string{"2GiB", "0", "16777216TiB", "+1", "1KiBMiB", "9223372036854775807"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		n, err := ParseSize(text)
		if err != nil {
			return
		}
		if n < 0 || strings.Trim(text, "0123456789KMGTiB") != "" || n == 0 && strings.Trim(text, "0KMGTiB") != "" {
			t.Errorf("%q is %d", text, n)
		}
	})
}
