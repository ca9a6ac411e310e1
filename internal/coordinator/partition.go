package coordinator

// PartitionFor returns the partition, of n, that holds a group:
// abs(String.hashCode) mod n, as Java computes it over UTF-16 units.
func PartitionFor(group string, n int32) int32 {
	var h int32
	for _, r := range group {
		if r > 0xffff {
			r -= 0x10000
			h = 31*h + (0xd800 + r>>10)
			r = 0xdc00 + r&0x3ff
		}
		h = 31*h + r
	}
	if h == -1<<31 {
		h = 0 // Utils.abs
	}
	if h < 0 {
		h = -h
	}
	return h % n
}
