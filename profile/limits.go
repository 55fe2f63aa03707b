package profile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Limits end a command that takes too much, or refuse it more. Zero means no limit.
type Limits struct {
	Timeout time.Duration
	Amounts Amounts
}

// Amounts are bytes, processes, files, seconds or percent, as the Limit says.
type Amounts [limitCount]int64

// A Limit is one thing that a command may take only so much of, besides the time until
// Limits.Timeout.
type Limit uint8

const (
	LimitMemory Limit = iota
	LimitProcesses
	LimitCPU
	LimitCPUPercent
	LimitFileSize
	LimitOpenFiles
	LimitOutput
	limitCount
)

// Of is how much of it the command may take, or 0.
func (l Limits) Of(which Limit) int64 { return l.Amounts[which] }

// String is the limit's name in configuration, flags and output.
func (l Limit) String() string               { return limitTable[l].name }
func (l Limit) MarshalText() ([]byte, error) { return []byte(l.String()), nil }

// limitTable holds what each limit is called, and from where to where it goes. Less than the least
// would keep the sandbox itself from starting, which is no limit on the command.
var limitTable = [limitCount]struct {
	name        string
	bytes       bool // an amount is a size
	least, most int64
}{
	LimitMemory:     {"memory", true, 16 << 20, 1 << 50},
	LimitProcesses:  {"processes", false, 16, 1 << 22},
	LimitCPU:        {"cpuSeconds", false, 1, 1<<31 - 1},
	LimitCPUPercent: {"cpuPercent", false, 1, 100_000},
	LimitFileSize:   {"fileSize", true, 1 << 20, 1 << 50},
	LimitOpenFiles:  {"openFiles", false, 64, 1 << 20},
	LimitOutput:     {"outputBytes", true, 1, 1 << 50},
}

// LimitNames are the limits, by name.
func LimitNames() []string {
	names := make([]string, limitCount)
	for i, row := range limitTable {
		names[i] = row.name
	}
	return names
}

// Amount writes an amount of it as configuration and flags have it.
func (l Limit) Amount(n int64) string {
	if !limitTable[l].bytes {
		return strconv.FormatInt(n, 10)
	}
	for _, u := range slices.Backward(sizeUnits) {
		if n >= u.bytes && n%u.bytes == 0 {
			return strconv.FormatInt(n/u.bytes, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10)
}

// check refuses an amount that is out of the limit's bounds. 0 is no limit.
func (l Limit) check(n int64) error {
	if row := limitTable[l]; n != 0 && (n < row.least || n > row.most) {
		return fmt.Errorf("must be from %s to %s, or 0 for no limit", l.Amount(row.least), l.Amount(row.most))
	}
	return nil
}

// parse reads an amount.
func (l Limit) parse(text string) (int64, error) {
	var n int64
	var err error
	if limitTable[l].bytes {
		n, err = ParseSize(text)
	} else if n, err = parseDigits(text); err != nil {
		err = fmt.Errorf("%s is not a whole number", shorten(text))
	}
	if err == nil {
		err = l.check(n)
	}
	return n, err
}

// sizeUnits, the smallest first. They are the powers of 1024 alone: whether GB is one of them,
// people disagree.
var sizeUnits = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

// ParseSize reads a number of bytes, with or without a unit.
func ParseSize(text string) (int64, error) {
	number, unit := text, int64(1)
	for _, u := range sizeUnits {
		if n, ok := strings.CutSuffix(text, u.name); ok {
			number, unit = n, u.bytes
		}
	}
	n, err := parseDigits(number)
	if err != nil || n > (1<<63-1)/unit {
		return 0, fmt.Errorf("%s is not a size, as 512MiB, 2GiB or a number of bytes", shorten(text))
	}
	return n * unit, nil
}

// parseDigits reads a number that is nothing but digits: strconv takes signs, too.
func parseDigits(text string) (int64, error) {
	n, err := strconv.ParseUint(text, 10, 63)
	return int64(n), err
}

// The limits of a configuration file. Each is a type, so that the file's reader says in which line
// one is out of bounds.
type (
	memoryLimit     int64
	processLimit    int
	cpuLimit        int
	cpuPercentLimit int
	fileSizeLimit   int64
	openFilesLimit  int
	outputLimit     int64
)

func (n *memoryLimit) UnmarshalText(text []byte) error   { return parseInto(n, LimitMemory, text) }
func (n *fileSizeLimit) UnmarshalText(text []byte) error { return parseInto(n, LimitFileSize, text) }
func (n *outputLimit) UnmarshalText(text []byte) error   { return parseInto(n, LimitOutput, text) }
func (n *processLimit) check() error                     { return LimitProcesses.check(int64(*n)) }
func (n *cpuLimit) check() error                         { return LimitCPU.check(int64(*n)) }
func (n *cpuPercentLimit) check() error                  { return LimitCPUPercent.check(int64(*n)) }
func (n *openFilesLimit) check() error                   { return LimitOpenFiles.check(int64(*n)) }

func parseInto[T ~int64](into *T, l Limit, text []byte) error {
	n, err := l.parse(string(text))
	*into = T(n)
	return err
}

// resolveLimits takes the configuration's limits, and the command line's over them.
func (p *Profile) resolveLimits(settings limitsConfig, r Request) error {
	if s := settings.TimeoutSeconds; s != nil {
		p.Limits.Timeout = time.Duration(*s) * time.Second
	}
	if r.Timeout > 0 {
		p.Limits.Timeout = r.Timeout
	}
	setLimit(p, LimitMemory, settings.Memory)
	setLimit(p, LimitProcesses, settings.Processes)
	setLimit(p, LimitCPU, settings.CPUSeconds)
	setLimit(p, LimitCPUPercent, settings.CPUPercent)
	setLimit(p, LimitFileSize, settings.FileSize)
	setLimit(p, LimitOpenFiles, settings.OpenFiles)
	setLimit(p, LimitOutput, settings.OutputBytes)
	for _, text := range r.Limits {
		name, amount, found := strings.Cut(text, "=")
		if !found {
			return fmt.Errorf("--limit %s: write NAME=AMOUNT, such as memory=2GiB", shorten(text))
		}
		which, err := valueOf(LimitNames(), []byte(name))
		if err != nil {
			return fmt.Errorf("--limit: %w", err)
		}
		n, err := Limit(which).parse(amount)
		if err != nil {
			return fmt.Errorf("--limit %s: %w", name, err)
		}
		p.Limits.Amounts[which] = n
	}
	return nil
}

func setLimit[T ~int | ~int64](p *Profile, which Limit, amount *T) {
	if amount != nil {
		p.Limits.Amounts[which] = int64(*amount)
	}
}
