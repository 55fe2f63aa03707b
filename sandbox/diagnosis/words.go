package diagnosis

import (
	"strings"
)

// A saying is what a program said of a path.
type saying uint8

const (
	nothingSaid saying = iota
	noSuchFile
	permissionDenied
	readOnlyFileSystem
)

// sayings are the words for it, in small letters, of the C library and of what has words of its
// own.
var sayings = []struct {
	words string
	saying
}{
	{"no such file or directory", noSuchFile},
	{"read-only file system", readOnlyFileSystem},
	{"permission denied", permissionDenied},
	{"os error 2)", noSuchFile}, {"os error 13)", permissionDenied}, {"os error 30)", readOnlyFileSystem},
	{"[errno 2]", noSuchFile}, {"[errno 13]", permissionDenied}, {"[errno 30]", readOnlyFileSystem},
	{"enoent", noSuchFile}, {"eacces", permissionDenied}, {"erofs", readOnlyFileSystem},
	{"no such file", noSuchFile}, // dash
	{"directory nonexistent", noSuchFile},
	{"can't cd to ", noSuchFile},
	{"nosuchfileexception: ", noSuchFile}, {"accessdeniedexception: ", permissionDenied}, // java.nio
	{"does not exist", noSuchFile}, {"doesn't exist", noSuchFile},
	{"cannot find module '", noSuchFile}, // node
	{"unable to access jarfile ", noSuchFile},
	{"unable to open database \"", noSuchFile},
	{"does not appear to be a git repository", noSuchFile}, {"not a git repository: '", noSuchFile},
	{"could not access '", noSuchFile}, {"cannot find or open ", noSuchFile}, {"can't open '", noSuchFile}, {"can't open file", noSuchFile},
	{"no rule to make target ", noSuchFile},
	{"couldn't open file", noSuchFile}, {"failed to open/read local data", noSuchFile}, // curl
	{"is not a directory", noSuchFile}, {"not a directory", noSuchFile},
}

// saidIn finds what a line says.
func saidIn(line string) saying {
	small := strings.ToLower(line)
	for _, s := range sayings {
		if strings.Contains(small, s.words) {
			return s.saying
		}
	}
	return nothingSaid
}

// writeWords tell that a path was to be made or changed.
var writeWords = []string{"cannot create", "can't create", "cannot touch", "cannot remove", "cannot move", "cannot make", "cannot mkdir", "for writing",
	"failed to create", "couldn't create", "could not create", "unable to create", "cannot write", "failed to write", "could not write", "cannot mkdir", "unable to write",
	", mkdir '", ", unlink '", ", rmdir '", ", rename '", ", copyfile '", "mkdir ", "tee: ", "install: ", "cannot open output file", "could not make",
	"writing go env config", "unable to open database", "saving key"}

func writes(line string) bool {
	small := strings.ToLower(line)
	for _, word := range writeWords {
		if strings.Contains(small, word) {
			return true
		}
	}
	return false
}

// makesAbove reports whether a line is of a program that makes a path's directories, too, and says
// of none of them that it could not: then what it misses is what it could not make. So does node of
// EROFS, go of all errors, and install -d of the last directory.
func makesAbove(line string) bool {
	return strings.Contains(line, ", mkdir '") || strings.Contains(line, "install: cannot change permissions of ") || strings.HasPrefix(line, "go: writing go env config: ") || strings.Contains(line, "unable to open database \"")
}

// saysNoPath is what some programs say of a file that they may not write, without its name.
var saysNoPath = lazily(`(?i)^curl: \(23\)|^zip error: could not create output file|attempt to write a readonly database|unable to open database file$|^zip i/o error: read-only`)

// complaining are the words of lines that tell why a command failed.
var complaining = []string{"error", "fatal", "fail", "exception", "traceback", "panic", "assert", "denied", "not found", "no such", "cannot", "can't", "couldn't",
	"could not", "unable", "undefined", "invalid", "abort", "segmentation", "unexpected", "refused", "timed out", "read-only", "enoent", "eacces", "erofs", "missing",
	"does not", "not a ", "unknown", "usage:", "illegal", "unrecognized", "expected", "killed", "bad ", "mismatch", "warning: no", "nonexistent", "not ok", "✗", "✖", "no rule"}

func complains(line string) bool {
	small := strings.ToLower(line)
	for _, word := range complaining {
		if strings.Contains(small, word) {
			return true
		}
	}
	return false
}

// wrapping are complaints about a complaint: of who started what failed, behind or around it.
var wrapping = lazily(`(?i)^\s*(` + strings.Join([]string{
	`(g?make|ninja|just)(\[\d+\])?: (\*\*\*|entering|leaving|build stopped|target)`,
	`error: recipe .* failed`, `FAILED: `,
	`compilation terminated`, `collect2: `, `exit (status|code) \d+$`, `command exited with`, `error: command .* failed`,
	`npm (err!|error|warn|notice)`, `error: could not compile`, `caused by:`, `error: process didn't exit`, `\[?error\]?:? command failed`, `tar( \(child\))?: error is not recoverable`, `rsync error: `, `failed \(`, `fatal: clone of `, `unable to load `, `[0-9a-f]{12,}:error:`, `\S+: all input file arguments failed`, `tar: exiting with failure`,
	`tar: child returned status`, `please make sure you have the correct access rights`, `and the repository exists`, `kex_exchange_identification: `, `connection closed by `, `emitted 'error' event`, `error: no matching distribution`, `fatal: could not read from remote repository`,
	`\S*bash: line \d+: /dev/(tcp|udp)/`, `error: (failed to|could not|unable to) `, `failed to `, `note: `, `thread '.*' panicked at`, `error: test failed`, `goroutine \d+`, `panic: `, `node:`, `traceback \(most recent`,
	`exception in thread`, `\.\.\. \d+ more`, `at `, `file "`, `error: metadata-generation-failed`, `curl: (try|\(2[36]\) fail)`, `error: .* exited with`, `subprocess\.calledprocesserror`,
	`go: (errors parsing|updating|downloading)`, `package .*: cannot find`, `fail\s`, `FAIL$`, `--- fail:`, `test result: failed`, `=+ .*(failed|error).* =+$`, `(failed|error) \S+\.py::`, `pip: error`, `error: internal error\.$`,
	`compiling`, `error: aborting due to`, `warning: failed to write cache`, `fatal: (index file|unable to write new index|failed to write commit object)`,
}, "|") + `)`)

func wraps(line string) bool { return wrapping.MatchString(line) }

// neutral lines tell nothing of why a command failed: blank ones, what is indented below a message,
// warnings.
func neutral(line string) bool {
	trimmed := strings.TrimSpace(line)
	if trimmed == "" || strings.HasPrefix(trimmed, "warning:") || strings.HasPrefix(trimmed, "WARNING:") || strings.HasPrefix(trimmed, "[notice]") || strings.HasPrefix(trimmed, "hint:") {
		return true
	}
	return strings.Trim(trimmed, "^~|=-+{} ") == "" || nodesFields.MatchString(line) || nodesCounts.MatchString(line)
}

// nodesFields are those of an error that node prints below its message.
var nodesFields = lazily(`^\s+(errno|code|syscall|path|dest|requireStack|hostname): `)

// nodesCounts are those at the end of its tests.
var nodesCounts = lazily(`^# (tests|suites|pass|fail|cancelled|skipped|todo|duration_ms) \d`)

var missing = []*pattern{
	lazily(`^(?:/\S*/)?(?:bash|sh|dash|zsh|ksh|ash|busybox)(?:: line \d+|: \d+)?: ([^:\s]+): (?:command )?not found$`),
	lazily(`^\S+: (?:line )?\d+: ([^:\s]+): (?:command )?not found$`),
	lazily(`^zsh:(?:\d+:)? command not found: (\S+)$`),
	lazily(`^g?make(?:\[\d+\])?: ([^:\s/]+): (?:No such file or directory|Command not found)$`),
	lazily(`^/usr/bin/env: [‘'"]([^‘’'"\s]+)[’'"]: No such file or directory$`),
	lazily(`^env: [‘'"]?([^‘’'"\s]+?)[’'"]?: No such file or directory$`),
}

// missingCommand is the name of a command that a line says was not found.
func missingCommand(line string) string {
	for _, expression := range missing {
		if m := expression.FindStringSubmatch(line); m != nil {
			return m[1]
		}
	}
	return ""
}
