"""Creates the shop's database: the same rows for the same seed."""

import random
import sqlite3

# What config/application.rb requires of Ruby.
LIBRARIES = ("rails", "active_record", "action_controller", "action_view", "sqlite3", "csv")
SCHEMA = """
CREATE TABLE customers (id INTEGER PRIMARY KEY, name TEXT NOT NULL, email TEXT NOT NULL, city TEXT NOT NULL,
                        notes TEXT NOT NULL);
CREATE TABLE products (id INTEGER PRIMARY KEY, sku TEXT NOT NULL, name TEXT NOT NULL, category TEXT NOT NULL,
                       description TEXT NOT NULL, price_cents INTEGER NOT NULL);
CREATE TABLE reviews (id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL, author TEXT NOT NULL,
                      stars INTEGER NOT NULL, body TEXT NOT NULL);
CREATE TABLE photos (id INTEGER PRIMARY KEY, product_id INTEGER NOT NULL, data BLOB NOT NULL);
CREATE TABLE orders (id INTEGER PRIMARY KEY, customer_id INTEGER NOT NULL, month INTEGER NOT NULL,
                     placed_on TEXT NOT NULL, status TEXT NOT NULL);
CREATE TABLE line_items (id INTEGER PRIMARY KEY, order_id INTEGER NOT NULL, product_id INTEGER NOT NULL,
                         quantity INTEGER NOT NULL, price_cents INTEGER NOT NULL);
CREATE TABLE stock_imports (id INTEGER PRIMARY KEY, sku TEXT NOT NULL, name TEXT NOT NULL,
                            quantity INTEGER NOT NULL, price_cents INTEGER NOT NULL, remark TEXT);
CREATE INDEX reviews_product ON reviews (product_id);
CREATE INDEX photos_product ON photos (product_id);
CREATE INDEX products_category ON products (category);
CREATE INDEX orders_customer ON orders (customer_id);
CREATE INDEX orders_month ON orders (month);
CREATE INDEX line_items_order ON line_items (order_id);
"""

CUSTOMERS = 400
PRODUCTS = 720
MONTHS = 12
ORDERS_PER_MONTH = 500
CATEGORIES = ["bags", "books", "cables", "desks", "garden", "kitchen", "lamps", "paper", "shoes", "tools"]
CITIES = ["Aarhus", "Bergen", "Cork", "Delft", "Evora", "Freiburg", "Ghent", "Helsinki"]
WORDS = ("amber birch cedar delta ember fable grove hazel ivory jasper kelp lotus maple nickel olive pearl "
         "quartz raven slate thyme umber velvet willow yarrow zinc").split()


def sentence(rng, words):
    return " ".join(rng.choice(WORDS) for _ in range(words))


def create(path, seed):
    """Writes a new database file."""
    rng = random.Random(seed)
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.executescript(SCHEMA)
        connection.executemany("INSERT INTO customers VALUES (?,?,?,?,?)", customers(rng))
        connection.executemany("INSERT INTO products VALUES (?,?,?,?,?,?)", products(rng))
        connection.executemany("INSERT INTO reviews (product_id, author, stars, body) VALUES (?,?,?,?)", reviews(rng))
        connection.executemany("INSERT INTO photos VALUES (?,?,?)", photos(rng))
        orders = list(make_orders(rng))
        connection.executemany("INSERT INTO orders VALUES (?,?,?,?,?)", orders)
        connection.executemany(
            "INSERT INTO line_items (order_id, product_id, quantity, price_cents) VALUES (?,?,?,?)",
            ((order[0], rng.randint(1, PRODUCTS), rng.randint(1, 9), rng.randint(100, 50_000))
             for order in orders for _ in range(rng.randint(1, 8))))
    connection.close()


def customers(rng):
    for number in range(1, CUSTOMERS + 1):
        name = sentence(rng, 2).title()
        yield number, name, f"{name.replace(' ', '.').lower()}@example.org", rng.choice(CITIES), sentence(rng, 40)


def products(rng):
    for number in range(1, PRODUCTS + 1):
        description = "\n\n".join(sentence(rng, rng.randint(20, 80)) for _ in range(rng.randint(2, 5)))
        yield (number, f"SK-{number:06}", sentence(rng, 3).title(), rng.choice(CATEGORIES), description,
               rng.randint(100, 50_000))


def reviews(rng):
    for product in range(1, PRODUCTS + 1):
        for _ in range(rng.randint(0, 8)):
            yield product, sentence(rng, 2).title(), rng.randint(1, 5), sentence(rng, rng.randint(10, 120))


def photos(rng):
    """A photo for each product, 4 to 300 KB, most of them small."""
    for number in range(1, PRODUCTS + 1):
        yield number, number, rng.randbytes(int(4096 * 75 ** (rng.random() ** 2)))


def make_orders(rng):
    for number in range(1, MONTHS * ORDERS_PER_MONTH + 1):
        month = (number - 1) // ORDERS_PER_MONTH
        yield (number, rng.randint(1, CUSTOMERS), month, f"2026-{month + 1:02}-{rng.randint(1, 28):02}",
               rng.choice(["new", "paid", "sent", "returned"]))
