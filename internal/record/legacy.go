package record

// Places of the fields of a message of format 0 or 1, counted from its offset.
const (
	legacyCRC        = 12
	legacyMagic      = 16
	legacyAttributes = 17
	legacyTimestamp  = 18
	legacyKeyV0      = 18
	legacyKeyV1      = 26
)
