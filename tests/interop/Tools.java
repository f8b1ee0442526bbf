import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.EOFException;
import java.io.OutputStream;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.net.Socket;
import org.apache.kafka.common.utils.Exit;
import org.slf4j.LoggerFactory;

/**
 * Runs the main classes of command line tools one after the other, as somebody on the other end of a socket asks.
 *
 * <p>A JVM takes seconds to start and a tool a tenth of one to run. The tools are what they are: their own main method
 * with the given arguments. Only the end of the process is taken from them, which becomes an exit code, and what they
 * print, which becomes an answer. Asked is a number of texts, first of which the class; answered are an exit code and
 * a length, and so many bytes of text; then the same for what of it went to stdout.
 */
final class Tools {

    /** What the present tool has printed. Tools may keep the stream that they once found, so it stays the same. */
    private static final ByteArrayOutputStream SAID = new ByteArrayOutputStream();

    /** What of it went to stdout. */
    private static final ByteArrayOutputStream TO_STDOUT = new ByteArrayOutputStream();

    /** The exit code and the texts when the present tool first wanted to end; some catch what is thrown at them then. */
    private static Integer code;

    private static byte[] text;

    private static byte[] toStdout;

    /** Takes a tool to its end, past whatever it would do next. */
    private static final class Ended extends Error {
        private static final long serialVersionUID = 1L;

        Ended() {
            super(null, null, false, false);
        }
    }

    /** Stdout, which goes to both. */
    private static final class Both extends OutputStream {
        @Override
        public void write(int one) {
            SAID.write(one);
            TO_STDOUT.write(one);
        }

        @Override
        public void write(byte[] bytes, int from, int count) {
            SAID.write(bytes, from, count);
            TO_STDOUT.write(bytes, from, count);
        }
    }

    public static void main(String[] arguments) throws Exception {
        LoggerFactory.getLogger(Tools.class).info("ready"); // logging keeps the stream that it finds now
        System.setOut(new PrintStream(new Both(), true));
        System.setErr(new PrintStream(SAID, true));
        Exit.Procedure end = (wanted, message) -> {
            end(wanted);
            throw new Ended();
        };
        Exit.setExitProcedure(end);
        Exit.setHaltProcedure(end);
        try (Socket socket = new Socket("127.0.0.1", Integer.parseInt(arguments[0]))) {
            socket.setTcpNoDelay(true);
            DataInputStream in = new DataInputStream(socket.getInputStream());
            DataOutputStream out = new DataOutputStream(socket.getOutputStream());
            while (true) {
                String[] asked = new String[in.readInt()];
                for (int i = 0; i < asked.length; i++) {
                    asked[i] = in.readUTF();
                }
                code = null;
                SAID.reset();
                TO_STDOUT.reset();
                end(run(asked));
                out.writeInt(code);
                out.writeInt(text.length);
                out.write(text);
                out.writeInt(toStdout.length);
                out.write(toStdout);
                out.flush();
            }
        } catch (EOFException gone) {
            System.exit(0);
        }
    }

    private static void end(int wanted) {
        System.out.flush();
        if (code == null) {
            code = wanted;
            text = SAID.toByteArray();
            toStdout = TO_STDOUT.toByteArray();
        }
    }

    private static int run(String[] asked) {
        String[] arguments = new String[asked.length - 1];
        System.arraycopy(asked, 1, arguments, 0, arguments.length);
        try {
            Class.forName(asked[0]).getMethod("main", String[].class).invoke(null, (Object) arguments);
            return 0;
        } catch (InvocationTargetException thrown) {
            thrown.getCause().printStackTrace(); // unless it was us who threw, in which case all is said
            return 1;
        } catch (ReflectiveOperationException wrong) {
            wrong.printStackTrace();
            return 1;
        }
    }
}
