import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.Properties;

/** Reads overrides of a topic, one set a line, and prints whether Kafka's controller would create a topic with them. */
public class TopicOracle {
    public static void main(String[] arguments) throws Exception {
        boolean remote = Boolean.parseBoolean(arguments[0]);
        Properties broker = new Properties();
        broker.put("zookeeper.connect", "127.0.0.1:1");
        Object config = Class.forName("kafka.server.KafkaConfig").getMethod("fromProps", Properties.class).invoke(null, broker);
        Map<?, ?> defaults = (Map<?, ?>) config.getClass().getMethod("extractLogConfigMap").invoke(config);
        Class<?> logConfig = Class.forName("org.apache.kafka.storage.internals.log.LogConfig");
        Method validate = Arrays.stream(logConfig.getMethods())
            .filter(method -> method.getName().equals("validate") && method.getParameterCount() == 5).findFirst().get();
        PrintStream out = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line; (line = in.readLine()) != null; ) {
            String[] parts = line.split("\u0001", -1);
            Properties overrides = new Properties();
            for (int index = 0; index + 1 < parts.length; index += 2) {
                overrides.put(parts[index], parts[index + 1]);
            }
            try {
                validate.invoke(null, new HashMap<String, String>(), overrides, defaults, remote, true);
                out.println("= valid");
            } catch (InvocationTargetException error) {
                out.println("= " + error.getCause().getMessage().replace('\n', ' '));
            }
        }
    }
}
