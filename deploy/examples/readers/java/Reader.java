// Show the committed records of a topic, one JSON object a line, until nothing has come for five seconds.
//
//     mvn -q dependency:copy-dependencies
//     java -cp 'target/dependency/*' Reader.java 127.0.0.1:9092 kvlens.figures.v1 MY_GROUP [read_uncommitted]
//
// kafka-clients brings zstd, and reads committed records only where it is told so.

import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.StringDeserializer;

public class Reader {
    static String shown(ConsumerRecord<String, byte[]> record) throws Exception {
        byte[] value = record.value();
        String key = record.key() == null ? "null" : '"' + record.key() + '"';
        String bytes = "null", hash = "null";
        if (value != null) {
            bytes = String.valueOf(value.length);
            hash = '"' + HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(value)) + '"';
        }
        return String.format(
                "{\"partition\":%d,\"offset\":%d,\"time\":%d,\"key\":%s,\"bytes\":%s,\"sha256\":%s}",
                record.partition(), record.offset(), record.timestamp(), key, bytes, hash);
    }

    public static void main(String[] given) throws Exception {
        Map<String, Object> settings = Map.of(
                "bootstrap.servers", given[0],
                "group.id", given[2],
                "auto.offset.reset", "earliest",
                "enable.auto.commit", "false",
                "isolation.level", given.length > 3 ? given[3] : "read_committed");
        try (var consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new ByteArrayDeserializer())) {
            consumer.subscribe(List.of(given[1]));
            long until = System.nanoTime() + Duration.ofSeconds(60).toNanos();
            while (System.nanoTime() < until) {
                for (ConsumerRecord<String, byte[]> record : consumer.poll(Duration.ofMillis(200))) {
                    System.out.println(shown(record));
                    until = System.nanoTime() + Duration.ofSeconds(5).toNanos();
                }
            }
            consumer.commitSync();
        }
    }
}
