"""Creates topics, uses each of them at once, adds partitions, and uses those at once.

    python use.py BOOTSTRAP PREFIX TOPICS

Records and unknown topics are not retried. The log of the clients is on stderr: it names the errors that a client
absorbs in its metadata.
"""

import sys
import time
from typing import Final

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions, NewTopic

CREATED: Final = 3
GROWN: Final = 6
REPLICAS: Final = 3
LIMIT_S: Final = 60.0


def use(admin: AdminClient, bootstrap: str, topic: str) -> None:
    """Create a topic, and make it larger. A new client after each change has no metadata of the topic."""
    admin.create_topics([NewTopic(topic, CREATED, REPLICAS)], operation_timeout=LIMIT_S)[topic].result(LIMIT_S)
    write(bootstrap, topic, range(CREATED))
    read(bootstrap, topic, CREATED)
    admin.create_partitions([NewPartitions(topic, GROWN)], operation_timeout=LIMIT_S)[topic].result(LIMIT_S)
    write(bootstrap, topic, range(CREATED, GROWN))
    read(bootstrap, topic, GROWN)


def write(bootstrap: str, topic: str, partitions: range) -> None:
    """Send one record to each partition."""
    # Without the last setting an unknown topic is an error after half a minute only.
    settings = {"acks": "all", "retries": 0, "topic.metadata.propagation.max.ms": 0}
    producer = Producer({"bootstrap.servers": bootstrap, "debug": "topic,metadata", **settings})
    errors: list[object] = []
    for partition in partitions:
        producer.produce(topic, str(partition), partition=partition, on_delivery=lambda error, _: errors.append(error))
    producer.flush(LIMIT_S)
    if errors != [None] * len(partitions):
        raise SystemExit(f"topic {topic}: produced to {partitions}: {errors}")


def read(bootstrap: str, topic: str, count: int) -> None:
    """Receive the records of all partitions."""
    settings = {"group.id": topic, "allow.auto.create.topics": False, "topic.metadata.propagation.max.ms": 0}
    consumer = Consumer({"bootstrap.servers": bootstrap, "debug": "topic,metadata", **settings})
    consumer.assign([TopicPartition(topic, partition, OFFSET_BEGINNING) for partition in range(count)])
    values: set[bytes | None] = set()
    deadline = time.monotonic() + LIMIT_S
    while len(values) < count:
        if time.monotonic() > deadline:
            raise SystemExit(f"topic {topic}: consumed {values} of {count} records")
        message = consumer.poll(1.0)
        if message is None:
            continue
        if (error := message.error()) is not None:
            raise KafkaException(error)
        values.add(message.value())
    consumer.close()


if __name__ == "__main__":
    brokers, prefix, topics = sys.argv[1:]
    client = AdminClient({"bootstrap.servers": brokers})
    for number in range(int(topics)):
        use(client, brokers, f"{prefix}-{number}")
        print("used", f"{prefix}-{number}", flush=True)
