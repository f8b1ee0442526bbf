"""The race: Kafka's own controller and kactl, in turn, over the same cluster in ZooKeeper and the same stub brokers."""
