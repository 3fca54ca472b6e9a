// What a Java server does that goes through malloc, for docs/how-to/other-languages.md: direct buffers, and gzip, whose state is
// outside of the heap of Java; and maps and strings, which are in it. Seeded; then quiet for 3 s.
//
//   java bench/workloads/other/Server.java [REQUESTS]
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.HashMap;
import java.util.Random;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;

public class Server {
    static final ByteBuffer[] KEPT = new ByteBuffer[400]; // a pool of buffers outside of the heap, as network libraries have
    static final AtomicLong SUM = new AtomicLong();

    static void request(int number) {
        try {
            Random random = new Random(number);
            StringBuilder text = new StringBuilder();
            HashMap<String, Integer> terms = new HashMap<>();
            for (int row = 20 + random.nextInt(400); row > 0; row--) {
                String name = "row " + random.nextInt(1_000_000);
                terms.merge(name, 1, Integer::sum);
                text.append(name).append(';').append(random.nextInt(100_000)).append('\n');
            }
            byte[] body = text.toString().getBytes("UTF-8");
            ByteArrayOutputStream packed = new ByteArrayOutputStream();
            try (GZIPOutputStream out = new GZIPOutputStream(packed)) {
                out.write(body);
            }
            ByteBuffer direct = ByteBuffer.allocateDirect(body.length * 4);
            direct.put(body);
            if (random.nextInt(3) == 0) {
                synchronized (KEPT) {
                    KEPT[random.nextInt(KEPT.length)] = direct;
                }
            }
            byte[] unpacked = new GZIPInputStream(new ByteArrayInputStream(packed.toByteArray())).readAllBytes();
            SUM.addAndGet(unpacked.length + terms.size());
        } catch (java.io.IOException e) {
            throw new java.io.UncheckedIOException(e);
        }
    }

    public static void main(String[] arguments) throws Exception {
        int requests = arguments.length > 0 ? Integer.parseInt(arguments[0]) : 20_000;
        var pool = Executors.newFixedThreadPool(32);
        for (int number = 0; number < requests; number++) {
            int own = number;
            pool.execute(() -> request(own));
        }
        pool.shutdown();
        pool.awaitTermination(1, TimeUnit.HOURS);
        Thread.sleep(3000);
        System.out.println("snug-metric: sum=" + SUM.get());
    }
}
