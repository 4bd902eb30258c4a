// The same with Kafka Streams.
//
//     mvn -q dependency:copy-dependencies
//     java -cp 'target/dependency/*' Streams.java 127.0.0.1:9092 kvlens.figures.v1 MY_APPLICATION [read_uncommitted]
//
// Kafka Streams reads committed records where its guarantee is exactly_once_v2, or its consumer is told so as here.

import java.security.MessageDigest;
import java.time.Duration;
import java.util.HexFormat;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.processor.api.ContextualProcessor;
import org.apache.kafka.streams.processor.api.Record;

public class Streams {
    static volatile long until = System.nanoTime() + Duration.ofSeconds(60).toNanos();

    static class Show extends ContextualProcessor<String, byte[], Void, Void> {
        @Override
        public void process(Record<String, byte[]> record) {
            byte[] value = record.value();
            var from = context().recordMetadata().orElseThrow();
            String key = record.key() == null ? "null" : '"' + record.key() + '"';
            String bytes = value == null ? "null" : String.valueOf(value.length);
            String hash = value == null ? "null" : '"' + sha256(value) + '"';
            System.out.printf(
                    "{\"partition\":%d,\"offset\":%d,\"time\":%d,\"key\":%s,\"bytes\":%s,\"sha256\":%s}%n",
                    from.partition(), from.offset(), record.timestamp(), key, bytes, hash);
            until = System.nanoTime() + Duration.ofSeconds(5).toNanos();
        }
    }

    static String sha256(byte[] value) {
        try {
            return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(value));
        } catch (java.security.NoSuchAlgorithmException error) {
            throw new IllegalStateException(error);
        }
    }

    public static void main(String[] given) throws Exception {
        var settings = new Properties();
        settings.put("bootstrap.servers", given[0]);
        settings.put("application.id", given[2]);
        settings.put("state.dir", System.getProperty("java.io.tmpdir") + "/" + given[2]);
        settings.put("auto.offset.reset", "earliest");
        settings.put("commit.interval.ms", "1000");
        settings.put(
                StreamsConfig.consumerPrefix("isolation.level"), given.length > 3 ? given[3] : "read_committed");
        var builder = new StreamsBuilder();
        builder.stream(given[1], Consumed.with(Serdes.String(), Serdes.ByteArray())).process(Show::new);
        try (var streams = new KafkaStreams(builder.build(), settings)) {
            streams.start();
            while (System.nanoTime() < until) Thread.sleep(200);
        }
    }
}
