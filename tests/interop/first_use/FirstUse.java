import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Future;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Creates topics, uses each of them at once, adds partitions, and uses those at once.
 *
 * <p>Arguments: BOOTSTRAP PREFIX TOPICS. Requests and records are not retried. The log of the clients is in the output:
 * it names the errors that a client absorbs in its metadata.
 */
public class FirstUse {
    private static final int CREATED = 3;
    private static final int GROWN = 6;
    private static final short REPLICAS = 3;
    private static final Duration LIMIT = Duration.ofSeconds(60);

    private final String bootstrap;

    private FirstUse(String bootstrap) {
        this.bootstrap = bootstrap;
    }

    public static void main(String[] arguments) throws Exception {
        FirstUse program = new FirstUse(arguments[0]);
        try (Admin admin = Admin.create(program.settings(Map.of()))) {
            for (int number = 0; number < Integer.parseInt(arguments[2]); number++) {
                String topic = arguments[1] + "-" + number;
                program.use(admin, topic);
                System.out.println("used " + topic);
            }
        }
    }

    /** A new client after each change has no metadata of the topic. */
    private void use(Admin admin, String topic) throws Exception {
        admin.createTopics(List.of(new NewTopic(topic, CREATED, REPLICAS))).all().get();
        write(topic, 0, CREATED);
        read(topic, CREATED);
        admin.createPartitions(Map.of(topic, NewPartitions.increaseTo(GROWN))).all().get();
        write(topic, CREATED, GROWN);
        read(topic, GROWN);
    }

    /** Sends one record to each partition from first to last, exclusively. */
    private void write(String topic, int first, int last) throws Exception {
        Map<String, Object> settings = settings(
            Map.of("acks", "all", "enable.idempotence", false, "max.block.ms", LIMIT.toMillis()));
        try (var producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int partition = first; partition < last; partition++) {
                sent.add(producer.send(new ProducerRecord<>(topic, partition, null, Integer.toString(partition))));
            }
            for (Future<RecordMetadata> each : sent) {
                each.get();
            }
        }
    }

    /** Receives the records of all partitions. */
    private void read(String topic, int count) {
        Map<String, Object> settings = settings(
            Map.of("auto.offset.reset", "earliest", "allow.auto.create.topics", false));
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer())) {
            consumer.assign(IntStream.range(0, count).mapToObj(each -> new TopicPartition(topic, each)).toList());
            Set<String> values = new HashSet<>();
            long deadline = System.nanoTime() + LIMIT.toNanos();
            while (values.size() < count) {
                if (System.nanoTime() > deadline) {
                    throw new IllegalStateException("consumed " + values + " of " + count + " records of " + topic);
                }
                consumer.poll(LIMIT).forEach(record -> values.add(record.value()));
            }
        }
    }

    private Map<String, Object> settings(Map<String, Object> more) {
        Map<String, Object> all = new HashMap<>(more);
        all.put("bootstrap.servers", bootstrap);
        all.put("retries", 0);
        return all;
    }
}
