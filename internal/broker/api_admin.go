package broker

// adminAPIs are topics, configurations, producer ids and what else the
// controller decides.
func adminAPIs() []api {
	return []api{
		{19, "CreateTopics", 2, 7, control((*Broker).createTopics)},
		{20, "DeleteTopics", 1, 6, control((*Broker).deleteTopics)},
		{22, "InitProducerId", 0, 5, control((*Broker).initProducerID)},
		{32, "DescribeConfigs", 1, 4, control((*Broker).describeConfigs)},
		{33, "AlterConfigs", 0, 2, control((*Broker).alterConfigs)},
		{37, "CreatePartitions", 0, 3, control((*Broker).createPartitions)},
		{44, "IncrementalAlterConfigs", 0, 1, control((*Broker).incrementalAlterConfigs)},
	}
}
