"""usage: queues.py PORT COUNT fill|drain

fill: publishers and a consumer at the same time on a queue that is not kept; then COUNT messages into one that is.
drain: fetches these after the server's restart. Each message is checked byte by byte.
"""

import hashlib
import sys
import threading

import pika

PUBLISHERS = 4


def body(number):
    return hashlib.sha256(str(number).encode()).hexdigest().encode() * (number % 150 + 1)


def connect(port):
    return pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port, heartbeat=0))


def publish(port, queue, numbers, persistent):
    connection = connect(port)
    channel = connection.channel()
    channel.confirm_delivery()
    properties = pika.BasicProperties(delivery_mode=2 if persistent else 1)
    for number in numbers:
        channel.basic_publish("", queue, f"{number}:".encode() + body(number), properties, mandatory=True)
    connection.close()


def consume(port, queue, count):
    connection = connect(port)
    channel = connection.channel()
    channel.basic_qos(prefetch_count=100)
    seen = set()
    for method, _properties, text in channel.consume(queue, inactivity_timeout=60):
        if method is None:
            sys.exit(f"only {len(seen)} of {count} messages came")
        number, _, rest = text.partition(b":")
        if rest != body(int(number)):
            sys.exit(f"message {number} came changed")
        seen.add(int(number))
        channel.basic_ack(method.delivery_tag)
        if len(seen) == count:
            break
    channel.cancel()
    connection.close()


def main():
    port, count, what = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    if what == "drain":
        consume(port, "kept", count)
        print(f"{count} kept over the restart")
        return
    connection = connect(port)
    connection.channel().queue_declare("passing")
    connection.channel().queue_declare("kept", durable=True)
    threads = [threading.Thread(target=publish, args=(port, "passing", range(part, count, PUBLISHERS), False))
               for part in range(PUBLISHERS)]
    for thread in threads:
        thread.start()
    consume(port, "passing", count)
    for thread in threads:
        thread.join()
    publish(port, "kept", range(count), True)
    connection.close()
    print(f"{count} sent and received")


main()
