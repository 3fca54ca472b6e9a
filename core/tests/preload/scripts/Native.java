// usage: Native LIBRARY SCALE. Java threads whose native code allocates, frees what others allocated, and calls back.
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.atomic.AtomicLong;

public class Native {
    static final int PAIRS = 3;
    static final int[] SIZES = {17, 100, 1000, 5000, 40000, 300000};

    record Block(long address, int bytes) {}

    static native long allocate(int bytes, byte fill);
    static native long sumAndFree(long address, int bytes);
    static native ByteBuffer buffer(int bytes);
    static native void freeBuffer(ByteBuffer buffer);
    static native String repeat(String text, int times);
    static native long callFromThreads(int threads, int rounds);

    // Called by threads that native code started and attached.
    static long called(byte[] bytes) {
        long sum = 0;
        for (byte one : bytes) sum += one;
        return sum;
    }

    static final AtomicLong sum = new AtomicLong(), wanted = new AtomicLong();

    static void make(ArrayBlockingQueue<Block> queue, int rounds) throws InterruptedException {
        for (int i = 0; i < rounds; i++) {
            int bytes = SIZES[i % SIZES.length];
            byte fill = (byte) (1 + i % 100);
            wanted.addAndGet((long) bytes * fill);
            queue.put(new Block(allocate(bytes, fill), bytes));
            if (i % 400 == 0) System.gc();
        }
        queue.put(new Block(0, 0));
    }

    static void take(ArrayBlockingQueue<Block> queue) throws InterruptedException {
        for (Block block = queue.take(); block.address() != 0; block = queue.take())
            sum.addAndGet(sumAndFree(block.address(), block.bytes()));
    }

    interface Work { void run() throws InterruptedException; }

    static Thread start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.run();
            } catch (InterruptedException stopped) {
                throw new IllegalStateException(stopped);
            }
        });
        thread.start();
        return thread;
    }

    public static void main(String[] arguments) throws Exception {
        System.load(arguments[0]);
        int scale = Integer.parseInt(arguments[1]);
        List<Thread> threads = new ArrayList<>();
        for (int n = 0; n < PAIRS; n++) {
            ArrayBlockingQueue<Block> queue = new ArrayBlockingQueue<>(100);
            threads.add(start(() -> make(queue, 2000 * scale)));
            threads.add(start(() -> take(queue)));
        }
        for (Thread thread : threads) thread.join();
        boolean buffers = true;
        for (int i = 1; i < 200 * scale; i++) {
            ByteBuffer buffer = buffer(i * 97);
            for (int at = 0; at < buffer.capacity(); at += 1000) buffer.put(at, (byte) i);
            buffers &= buffer.get(0) == (byte) i;
            freeBuffer(buffer);
        }
        String text = repeat("snug ", 20000);
        System.out.println("blocks " + (sum.get() == wanted.get()) + " buffers " + buffers + " text " + text.length()
            + " calls " + callFromThreads(4, 300 * scale));
    }
}
