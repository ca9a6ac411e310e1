package dump

import (
	"bytes"
	"io/fs"
	"strings"
	"testing"

	"github.com/varvelog/varve/internal/vfs/memfs"
)

func TestOptions(t *testing.T) {
	tests := []struct {
		name   string
		args   string
		stderr string // what standard error begins with
		code   int
	}{
		{"no argument prints the help", "", "Prints the content", 1},
		{"help wins over everything", "--files x.log --help", "Prints the content", 1},
		{"files are required", "--deep-iteration", `Missing required argument "[files]"` + "\nOption", 1},
		{"no abbreviations", "--file x.log", `Exception in thread "main" joptsimple.UnrecognizedOptionException: file is not a recognized option`, 1},
		{"short options do not exist", "-f x.log", `Exception in thread "main" joptsimple.UnrecognizedOptionException: f is not a recognized option`, 1},
		{"an argument that is not there", "--files", `Exception in thread "main" joptsimple.OptionMissingRequiredArgumentException: Option files requires an argument`, 1},
		{"a number that is none", "--files x.log --max-bytes many", `Exception in thread "main" joptsimple.OptionArgumentConversionException: Cannot parse argument 'many' of option max-bytes`, 1},
		{"twice what may be given once", "--files a.log --files b.log", `Exception in thread "main" joptsimple.MultipleArgumentsForOptionException: Found multiple arguments for option files, but you asked for only one`, 1},
		{"a decoder class of another jar", "--files x.log --value-decoder-class com.example.D", `Exception in thread "main" java.lang.RuntimeException: Failed to load decoder class`, 1},
		{"words that are no options are ignored", "word --files=empty/00000000000000000000.log word", "", 0},
		{"an optional argument does not take an option", "--value-decoder-class --files=empty/00000000000000000000.log", "", 0},
		{"the decoder's name without its package", "--key-decoder-class LongDecoder --files=empty/00000000000000000000.log", "", 0},
		{"a name that is not a number", "--files x.log", `Exception in thread "main" java.lang.NumberFormatException: For input string: "x"`, 1},
	}
	disk := memfs.New()
	if err := disk.MkdirAll("/d/empty", 0o755); err != nil {
		t.Fatal(err)
	}
	f, err := disk.OpenFile("/d/empty/00000000000000000000.log", 0x42, fs.FileMode(0o644)) // read-write, create
	if err != nil {
		t.Fatal(err)
	}
	f.Close()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			tool := Tool{FS: disk, Dir: "/d", Version: "1.2.3", Stdout: &stdout, Stderr: &stderr}
			if code := tool.Run(strings.Fields(tt.args)); code != tt.code || !strings.HasPrefix(stderr.String(), tt.stderr) || tt.stderr == "" && stderr.Len() > 0 {
				t.Errorf("exit %d, standard error %q; want %d, %q", code, stderr.String(), tt.code, tt.stderr)
			}
		})
	}
}

func TestVersionNamesKafkasReleaseFirst(t *testing.T) {
	var stdout, stderr bytes.Buffer
	tool := Tool{FS: memfs.New(), Dir: "/", Version: "1.2.3", Stdout: &stdout, Stderr: &stderr}
	if code := tool.Run([]string{"--version"}); code != 0 || stdout.String() != "4.4.0 (varve 1.2.3)\n" {
		t.Errorf("exit %d, %q", code, stdout.String())
	}
}
