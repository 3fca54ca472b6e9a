import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Comparator;
import java.util.List;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.zip.GZIPInputStream;
import java.util.zip.GZIPOutputStream;

/** Makes the JVM itself allocate: threads, compiled code, classes (lambdas), direct buffers, zlib, collections. */
public class Threads {
  public static void main(String[] arguments) throws Exception {
    int scale = Integer.parseInt(arguments[0]);
    System.out.println("sum " + sumInThreads(scale) + " sorted " + sortMuch(scale) + " zip " + zipMuch(scale)
        + " direct " + directBuffers(scale));
  }

  /** Many short threads beside a pool. */
  static long sumInThreads(int scale) throws Exception {
    ConcurrentHashMap<Integer, Long> sums = new ConcurrentHashMap<>();
    for (int round = 0; round < 5 * scale; round++) {
      CountDownLatch done = new CountDownLatch(40);
      for (int n = 0; n < 40; n++) {
        int number = n;
        new Thread(() -> {
          sums.put(number, 50000L);
          done.countDown();
        }).start();
      }
      done.await();
    }
    ExecutorService pool = Executors.newFixedThreadPool(8);
    List<Future<Integer>> futures = new ArrayList<>();
    for (int n = 0; n < 500 * scale; n++) {
      int number = n;
      futures.add(pool.submit(() -> ("text " + number).repeat(number % 300).length()));
    }
    for (Future<Integer> future : futures) {
      future.get();
    }
    pool.shutdown();
    return sums.values().stream().mapToLong(Long::longValue).sum();
  }

  static boolean sortMuch(int scale) {
    boolean sorted = true;
    for (int round = 0; round < scale; round++) {
      List<String> words = new ArrayList<>();
      for (int n = 0; n < 200000; n++) {
        words.add("word " + (n * 7919L % 200003));
      }
      words.sort(Comparator.comparing((String word) -> word.length()).thenComparing(Comparator.reverseOrder()));
      for (int n = 1; n < words.size(); n++) {
        sorted &= words.get(n - 1).length() <= words.get(n).length();
      }
    }
    return sorted;
  }

  /** zlib allocates outside the Java heap. */
  static boolean zipMuch(int scale) throws Exception {
    boolean same = true;
    for (int round = 0; round < 60 * scale; round++) {
      byte[] data = new byte[100000 + 1013 * round];
      for (int n = 0; n < data.length; n++) {
        data[n] = (byte) (n * n / 1000);
      }
      ByteArrayOutputStream packed = new ByteArrayOutputStream();
      try (GZIPOutputStream out = new GZIPOutputStream(packed)) {
        out.write(data);
      }
      try (GZIPInputStream in = new GZIPInputStream(new ByteArrayInputStream(packed.toByteArray()))) {
        same &= Arrays.equals(in.readAllBytes(), data);
      }
    }
    return same;
  }

  /** Direct buffers are malloc's. */
  static boolean directBuffers(int scale) {
    boolean intact = true;
    List<ByteBuffer> kept = new ArrayList<>();
    for (int n = 0; n < 2000 * scale; n++) {
      ByteBuffer buffer = ByteBuffer.allocateDirect(100 + n * 7919 % 70000);
      buffer.putInt(0, n);
      kept.add(buffer);
      if (kept.size() > 500) {
        intact &= kept.remove(n * 31 % 500).getInt(0) >= 0;
      }
    }
    System.gc();
    for (int n = 1; n < kept.size(); n++) {
      intact &= kept.get(n - 1).getInt(0) < kept.get(n).getInt(0);
    }
    return intact;
  }
}
