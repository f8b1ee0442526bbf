import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Method;
import java.net.InetAddress;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import javax.security.auth.x500.X500Principal;
import kafka.security.authorizer.AclAuthorizer;
import org.apache.kafka.common.network.ClientInformation;
import org.apache.kafka.common.network.ListenerName;
import org.apache.kafka.common.protocol.ApiKeys;
import org.apache.kafka.common.requests.RequestContext;
import org.apache.kafka.common.requests.RequestHeader;
import org.apache.kafka.common.resource.PatternType;
import org.apache.kafka.common.resource.ResourcePattern;
import org.apache.kafka.common.security.auth.KafkaPrincipal;
import org.apache.kafka.common.security.auth.SecurityProtocol;
import org.apache.kafka.common.security.ssl.SslPrincipalMapper;
import org.apache.kafka.common.utils.SecurityUtils;
import org.apache.kafka.security.authorizer.AclEntry;
import org.apache.kafka.server.authorizer.Action;
import org.apache.kafka.server.authorizer.AuthorizationResult;
import scala.jdk.javaapi.CollectionConverters;

/** Answers questions about identities and rights by the JDK's and Kafka's own classes: a line of JSON for each line. */
final class SecurityOracle {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err); // loggers write to this one
        BufferedReader questions = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = questions.readLine(); line != null; line = questions.readLine()) {
            JsonNode question = JSON.readTree(line);
            ArrayNode answer = JSON.createArrayNode();
            switch (question.get("about").asText()) {
                case "names" -> names(question, answer);
                case "rules" -> rules(question, answer);
                default -> rights(question, answer);
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    /** The texts of names in DER; null for those that are malformed. */
    private static void names(JsonNode question, ArrayNode answer) {
        for (JsonNode name : question.get("names")) {
            try {
                answer.add(new X500Principal(Base64.getDecoder().decode(name.asText())).getName());
            } catch (IllegalArgumentException malformed) {
                answer.addNull();
            }
        }
    }

    /** For each case the names that its rules give, null where none applies; null for a case if its rules are invalid. */
    private static void rules(JsonNode question, ArrayNode answer) {
        for (JsonNode one : question.get("cases")) {
            SslPrincipalMapper mapper;
            try {
                mapper = SslPrincipalMapper.fromRules(one.get("rules").asText());
            } catch (RuntimeException invalid) {
                answer.addNull();
                continue;
            }
            ArrayNode mapped = answer.addArray();
            for (JsonNode name : one.get("names")) {
                try {
                    mapped.add(mapper.getName(name.asText()));
                } catch (Exception noneApplies) {
                    mapped.addNull();
                }
            }
        }
    }

    /** The decisions of AclAuthorizer about requests, by the lists as they are stored in ZooKeeper. */
    private static void rights(JsonNode question, ArrayNode answer) throws Exception {
        AclAuthorizer authorizer = new AclAuthorizer();
        set(authorizer, "shouldAllowEveryoneIfNoAclIsFound_$eq", boolean.class, question.get("if_no_acl").asBoolean());
        java.util.Set<KafkaPrincipal> superUsers = new java.util.HashSet<>();
        question.get("super_users").forEach(user -> superUsers.add(SecurityUtils.parseKafkaPrincipal(user.asText())));
        set(authorizer, "superUsers_$eq", scala.collection.immutable.Set.class,
            CollectionConverters.asScala(superUsers).toSet());
        for (JsonNode list : question.get("lists")) {
            ResourcePattern pattern = new ResourcePattern(
                SecurityUtils.resourceType(list.get("type").asText()), list.get("name").asText(),
                PatternType.fromString(list.get("pattern").asText()));
            java.util.Set<AclEntry> entries =
                AclEntry.fromBytes(list.get("data").asText().getBytes(StandardCharsets.UTF_8));
            authorizer.updateCache(pattern,
                new AclAuthorizer.VersionedAcls(CollectionConverters.asScala(entries).toSet(), 1));
        }
        for (JsonNode request : question.get("requests")) {
            RequestContext context = new RequestContext(
                new RequestHeader(ApiKeys.METADATA, (short) 1, "", 1), "1",
                InetAddress.getByName(request.get("host").asText()),
                SecurityUtils.parseKafkaPrincipal(request.get("principal").asText()), new ListenerName("INTERNAL"),
                SecurityProtocol.SASL_SSL, ClientInformation.EMPTY, false);
            Action action = new Action(
                SecurityUtils.operation(request.get("operation").asText()),
                new ResourcePattern(SecurityUtils.resourceType(request.get("type").asText()),
                    request.get("name").asText(), PatternType.LITERAL),
                1, false, false);
            answer.add(authorizer.authorize(context, List.of(action)).get(0) == AuthorizationResult.ALLOWED);
        }
    }

    private static void set(AclAuthorizer authorizer, String name, Class<?> kind, Object value) throws Exception {
        Method setter = null;
        for (Method method : AclAuthorizer.class.getDeclaredMethods()) {
            if (method.getName().endsWith(name) && method.getParameterCount() == 1) {
                setter = method;
            }
        }
        setter.setAccessible(true);
        setter.invoke(authorizer, value);
    }
}
