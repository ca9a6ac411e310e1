package broker

// adminAPIs are topics, configurations, producer ids and what else the
// controller decides.
func adminAPIs() []api {
	return []api{}
}
