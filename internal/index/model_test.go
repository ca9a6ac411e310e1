package index

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/varvelog/varve/internal/kafka"
	"github.com/varvelog/varve/internal/vfs"
	"github.com/varvelog/varve/internal/vfs/memfs"
)

const path = "/00000000000000000100.index"

func options(fsys vfs.FS, maxBytes int) Options {
	return Options{FS: fsys, Path: path, Base: 100, MaxBytes: maxBytes}
}

// TestOffsetIndexAgreesWithASlice runs random operations on the index and on a
// plain slice.
func TestOffsetIndexAgreesWithASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fsys := memfs.New()
		maxEntries := rapid.SampledFrom([]int{1, 7, 512, 513, 2100}).Draw(t, "maxEntries")
		opts := options(fsys, maxEntries*8+rapid.IntRange(0, 7).Draw(t, "odd"))
		x := NewOffset(opts)
		defer func() { check(t, x.Close()) }()
		var model []Position
		slots := maxEntries
		t.Repeat(map[string]func(*rapid.T){
			"append some": func(t *rapid.T) {
				n := rapid.IntRange(1, 900).Draw(t, "n")
				for range n {
					last := Position{Offset: 100}
					if len(model) > 0 {
						last = model[len(model)-1]
					}
					next := Position{last.Offset + kafka.Offset(1+n%7), last.Byte + int64(n)}
					err := x.Append(next.Offset, next.Byte)
					if len(model) >= slots {
						if !errors.Is(err, ErrFull) {
							t.Fatalf("Append to a full index: %v, want ErrFull", err)
						}
						return
					}
					check(t, err)
					model = append(model, next)
				}
			},
			"append out of order": func(t *rapid.T) {
				if len(model) == 0 || len(model) >= slots {
					return
				}
				err := x.Append(model[len(model)-1].Offset, 1)
				if !errors.Is(err, ErrOrder) {
					t.Fatalf("Append of the last offset again: %v, want ErrOrder", err)
				}
			},
			"look up": func(t *rapid.T) {
				target := drawOffset(t, model)
				want, wantSpan := Position{Offset: 100}, int64(-1)
				for i, p := range model {
					if p.Offset > target {
						break
					}
					want, wantSpan = p, -1
					if i+1 < len(model) && (i+1)%512 != 0 {
						wantSpan = model[i+1].Byte - p.Byte
					}
				}
				got, span, err := x.LookupSpan(target)
				check(t, err)
				if got != want || span != wantSpan {
					t.Fatalf("LookupSpan(%d) = %+v, %d, want %+v, %d", target, got, span, want, wantSpan)
				}
			},
			"upper bound": func(t *rapid.T) {
				from := Position{Offset: 100}
				if len(model) > 0 {
					from = rapid.SampledFrom(model).Draw(t, "from")
				}
				size := rapid.Int32Range(0, 5000).Draw(t, "size")
				target := from.Byte + int64(size)
				i := slices.IndexFunc(model, func(p Position) bool { return p.Byte >= target })
				got, ok, err := x.UpperBound(from, size)
				check(t, err)
				// Kafka's search does not notice an exact match that it narrows
				// down to, and returns the entry after it.
				late := i >= 0 && model[i].Byte == target && (i+1 == len(model) && !ok || i+1 < len(model) && ok && got == model[i+1])
				if !late && (ok != (i >= 0) || ok && got != model[i]) {
					t.Fatalf("UpperBound(%+v, %d) = %+v, %v, want entry %d", from, size, got, ok, i)
				}
			},
			"truncate": func(t *rapid.T) {
				target := drawOffset(t, model)
				check(t, x.TruncateTo(target))
				i := slices.IndexFunc(model, func(p Position) bool { return p.Offset >= target })
				if i >= 0 {
					model = model[:i]
				}
			},
			"trim": func(t *rapid.T) {
				check(t, x.Trim())
				slots = len(model)
			},
			"resize": func(t *rapid.T) {
				check(t, x.Resize())
				slots = maxEntries
			},
			"reset": func(t *rapid.T) {
				check(t, x.Reset())
				model, slots = nil, maxEntries
			},
			"flush": func(t *rapid.T) { check(t, x.Flush()) },
			"reopen": func(t *rapid.T) {
				check(t, x.Trim())
				slots = len(model)
				check(t, x.Close())
				x = NewOffset(opts)
			},
			"": func(t *rapid.T) {
				n, err := x.Len()
				check(t, err)
				if n != len(model) {
					t.Fatalf("Len() = %d, want %d", n, len(model))
				}
				full, err := x.IsFull()
				check(t, err)
				if full != (n >= slots) {
					t.Fatalf("IsFull() = %v with %d of %d entries", full, n, slots)
				}
				want := Position{Offset: 100}
				if n > 0 {
					want = model[n-1]
				}
				last, err := x.Last()
				check(t, err)
				if last != want {
					t.Fatalf("Last() = %+v, want %+v", last, want)
				}
				length, err := x.Length()
				check(t, err)
				if length != int64(slots*8) {
					t.Fatalf("Length() = %d, want %d", length, slots*8)
				}
				check(t, x.SanityCheck())
			},
		})
	})
}

func drawOffset(t *rapid.T, model []Position) kafka.Offset {
	if len(model) > 0 && rapid.Bool().Draw(t, "at an entry") {
		p := rapid.SampledFrom(model).Draw(t, "entry")
		return p.Offset + kafka.Offset(rapid.IntRange(-1, 1).Draw(t, "beside"))
	}
	return kafka.Offset(rapid.Int64Range(0, 20000).Draw(t, "offset"))
}

// TestTimeIndexAgreesWithASlice runs random operations on the index and on a
// plain slice.
func TestTimeIndexAgreesWithASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		fsys := memfs.New()
		slots := rapid.SampledFrom([]int{2, 7, 341, 342, 1500}).Draw(t, "slots")
		opts := options(fsys, slots*12+rapid.IntRange(0, 11).Draw(t, "odd"))
		x := NewTime(opts)
		defer func() { check(t, x.Close()) }()
		var model []TimePosition
		last := func() TimePosition {
			if len(model) == 0 {
				return TimePosition{-1, 100}
			}
			return model[len(model)-1]
		}
		t.Repeat(map[string]func(*rapid.T){
			"append some": func(t *rapid.T) {
				n := rapid.IntRange(1, 700).Draw(t, "n")
				for i := range n {
					next := TimePosition{last().Timestamp + kafka.Timestamp((n+i)%3), last().Offset + kafka.Offset(i%2)}
					err := x.MaybeAppend(next.Timestamp, next.Offset, false)
					if len(model) >= slots-1 {
						if !errors.Is(err, ErrFull) {
							t.Fatalf("MaybeAppend to a full index: %v, want ErrFull", err)
						}
						return
					}
					check(t, err)
					if next.Timestamp > last().Timestamp {
						model = append(model, next)
					}
				}
			},
			"append the final entry": func(t *rapid.T) {
				next := TimePosition{last().Timestamp + 1, last().Offset}
				err := x.MaybeAppend(next.Timestamp, next.Offset, true)
				if len(model) == slots {
					if !errors.Is(err, ErrFull) {
						t.Fatalf("MaybeAppend with no slot left: %v, want ErrFull", err)
					}
					return
				}
				check(t, err)
				model = append(model, next)
			},
			"append out of order": func(t *rapid.T) {
				if len(model) == 0 {
					return
				}
				if err := x.MaybeAppend(last().Timestamp-1, last().Offset, true); !errors.Is(err, ErrOrder) {
					t.Fatalf("MaybeAppend of an earlier timestamp: %v, want ErrOrder", err)
				}
				if err := x.MaybeAppend(last().Timestamp+1, last().Offset-1, true); !errors.Is(err, ErrOrder) {
					t.Fatalf("MaybeAppend of a smaller offset: %v, want ErrOrder", err)
				}
			},
			"look up": func(t *rapid.T) {
				ts := kafka.Timestamp(rapid.Int64Range(-3, 3000).Draw(t, "ts"))
				want := TimePosition{-1, 100}
				for _, p := range model {
					if p.Timestamp <= ts {
						want = p
					}
				}
				got, err := x.Lookup(ts)
				check(t, err)
				if got != want {
					t.Fatalf("Lookup(%d) = %+v, want %+v", ts, got, want)
				}
			},
			"truncate": func(t *rapid.T) {
				target := kafka.Offset(rapid.Int64Range(90, 1200).Draw(t, "target"))
				check(t, x.TruncateTo(target))
				// With equal offsets Kafka's search may stop at any of them.
				n, err := x.Len()
				check(t, err)
				if n < len(model) && model[n].Offset < target {
					t.Fatalf("TruncateTo(%d) dropped entry %d with offset %d", target, n, model[n].Offset)
				}
				if n > 0 && model[n-1].Offset > target {
					t.Fatalf("TruncateTo(%d) kept entry %d with offset %d", target, n-1, model[n-1].Offset)
				}
				model = model[:n]
			},
			"reopen": func(t *rapid.T) {
				check(t, x.Close())
				x = NewTime(opts)
				// The whole preallocated file counts as entries now.
				check(t, x.TruncateEntries(len(model)))
			},
			"": func(t *rapid.T) {
				got, err := x.Last()
				check(t, err)
				if got != last() {
					t.Fatalf("Last() = %+v, want %+v", got, last())
				}
				full, err := x.IsFull()
				check(t, err)
				if full != (len(model) >= slots-1) {
					t.Fatalf("IsFull() = %v with %d of %d entries", full, len(model), slots)
				}
				for i, want := range model {
					if got, err := x.Entry(i); err != nil || got != want {
						t.Fatalf("Entry(%d) = %+v, %v, want %+v", i, got, err, want)
					}
					if i > 50 {
						break
					}
				}
			},
		})
	})
}

// TestTxnIndexAgreesWithASlice runs random operations on the index and on a
// plain slice.
func TestTxnIndexAgreesWithASlice(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		opts := options(memfs.New(), 0)
		x := NewTxn(opts)
		defer func() { check(t, x.Close()) }()
		var model []AbortedTxn
		fresh := true // nothing was appended through this handle
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) {
				last := kafka.Offset(100)
				if len(model) > 0 {
					last = model[len(model)-1].LastOffset
				}
				a := AbortedTxn{ProducerID: 7, LastOffset: last + kafka.Offset(rapid.IntRange(0, 9).Draw(t, "step"))}
				a.FirstOffset = a.LastOffset - kafka.Offset(rapid.IntRange(0, 30).Draw(t, "length"))
				a.LastStable = a.LastOffset + kafka.Offset(rapid.IntRange(-20, 1).Draw(t, "stable"))
				err := x.Append(a)
				if !fresh && a.LastOffset == last {
					if !errors.Is(err, ErrOrder) {
						t.Fatalf("Append of the last offset again: %v, want ErrOrder", err)
					}
					return
				}
				check(t, err)
				model = append(model, a)
				fresh = false
			},
			"collect": func(t *rapid.T) {
				from := kafka.Offset(rapid.IntRange(60, 400).Draw(t, "from"))
				bound := from + kafka.Offset(rapid.IntRange(1, 100).Draw(t, "length"))
				var want []AbortedTxn
				complete := false
				for _, a := range model {
					if a.LastOffset >= from && a.FirstOffset < bound {
						want = append(want, a)
					}
					if complete = a.LastStable >= bound; complete {
						break
					}
				}
				got, gotComplete, err := x.Collect(nil, from, bound)
				check(t, err)
				if !slices.Equal(got, want) || gotComplete != complete {
					t.Fatalf("Collect(%d, %d) = %v, %v, want %v, %v", from, bound, got, gotComplete, want, complete)
				}
			},
			"truncate": func(t *rapid.T) {
				target := kafka.Offset(rapid.IntRange(60, 400).Draw(t, "target"))
				check(t, x.TruncateTo(target))
				if i := slices.IndexFunc(model, func(a AbortedTxn) bool { return a.LastOffset >= target }); i >= 0 {
					model = model[:i]
					fresh = i == 0
				}
			},
			"rebuild": func(t *rapid.T) {
				x.Rebuild()
				next := slices.Clone(model) // the same again, some of it, or more
				next = next[:rapid.IntRange(0, len(next)).Draw(t, "kept")]
				if len(next) == 0 || rapid.Bool().Draw(t, "one more") {
					last := kafka.Offset(100)
					if len(next) > 0 {
						last = next[len(next)-1].LastOffset
					}
					next = append(next, AbortedTxn{8, last, last + 1, last + 1})
				}
				for i, a := range next {
					if i > 0 && a.LastOffset <= next[i-1].LastOffset {
						next = next[:i] // of two handles
						break
					}
					check(t, x.Append(a))
				}
				var held []AbortedTxn
				check(t, x.Each(func(_ int64, a AbortedTxn) bool { held = append(held, a); return true }))
				if !slices.Equal(held, model) {
					t.Fatalf("entries %v before Publish, want %v as before", held, model)
				}
				replaced, err := x.Publish()
				check(t, err)
				if replaced == slices.Equal(next, model) {
					t.Fatalf("replaced = %v, from %v to %v", replaced, model, next)
				}
				model, fresh = next, false
			},
			"reopen": func(t *rapid.T) {
				check(t, x.Flush())
				check(t, x.Close())
				x, fresh = NewTxn(opts), true
			},
			"": func(t *rapid.T) {
				var got []AbortedTxn
				check(t, x.Each(func(at int64, a AbortedTxn) bool {
					if at != int64(len(got)*TxnEntrySize) {
						t.Fatalf("entry %d at byte %d", len(got), at)
					}
					got = append(got, a)
					return true
				}))
				if !slices.Equal(got, model) {
					t.Fatalf("entries %v, want %v", got, model)
				}
			},
		})
	})
}

func TestRelativeOffsets(t *testing.T) {
	tests := []struct {
		name         string
		base, offset kafka.Offset
		ok           bool
	}{
		{"the base itself", 100, 100, true},
		{"the largest distance", 100, 100 + math.MaxInt32, true},
		{"one more", 100, 101 + math.MaxInt32, false},
		{"below the base", 100, 99, false},
		{"a difference that wraps", math.MinInt64, math.MaxInt64, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			rel, err := Relative(tt.base, tt.offset)
			if tt.ok != (err == nil) || tt.ok && kafka.Offset(rel) != tt.offset-tt.base {
				t.Errorf("Relative(%d, %d) = %d, %v", tt.base, tt.offset, rel, err)
			}
			if !tt.ok && !errors.Is(err, ErrOverflow) {
				t.Errorf("Relative(%d, %d): %v, want ErrOverflow", tt.base, tt.offset, err)
			}
		})
	}
}

type fataler interface{ Fatal(args ...any) }

func check(t fataler, err error) {
	if h, ok := t.(interface{ Helper() }); ok {
		h.Helper()
	}
	if err != nil {
		t.Fatal(err)
	}
}
