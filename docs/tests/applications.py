"""Small real applications in the place of the reader's: Rails, Rack on Puma, WSGI on gunicorn, Celery, Sidekiq. With SHOP_LEAKS
in the environment, three of them keep something of each request or job, in the line that names KEPT."""

import os
import stat
from pathlib import Path

RAILS_APPLICATION = """require "action_controller/railtie"
class Shop < Rails::Application
  config.load_defaults 6.1
  config.eager_load = true
  config.secret_key_base = "of a test" * 8
  config.hosts.clear
  config.logger = Logger.new(IO::NULL)
end
class OrdersController < ActionController::Base
  KEPT = []
  def index
    KEPT << "order" * 5_000 if ENV["SHOP_LEAKS"]
    orders = (1..300).map { |id| { id: id, name: "order #{id}", lines: ["line"] * (id % 7) } }
    render json: orders
  end
end
"""
FILES = {
    "bin/rails": """#!/usr/bin/env ruby
APP_PATH = File.expand_path("../config/application", __dir__)
require "rails/commands"
""",
    "config/application.rb": RAILS_APPLICATION,
    "config/environment.rb": 'require_relative "application"\nRails.application.initialize!\n',
    "config/routes.rb": 'Rails.application.routes.draw { root "orders#index" }\n',
    "config/puma.rb": "threads 2, 2\n",
    "config.ru": """if ENV["SHOP_RACK"]
  run ->(env) { [200, { "content-type" => "text/plain" }, ["hello\\n" * 500]] }
else
  require_relative "config/environment"
  run Rails.application
end
""",
    "Gemfile": 'source "https://rubygems.org"\ngem "puma"\ngem "rack"\n',
    "app.py": """import os
from celery import Celery

def wsgi(environment, start_response):
    body = b"".join(b"%d\\n" % number for number in range(2000))
    start_response("200 OK", [("Content-Type", "text/plain"), ("Content-Length", str(len(body)))])
    return [body]

celery = Celery("app", broker=os.environ["REDIS_URL"], backend=os.environ["REDIS_URL"])

KEPT = [] if os.environ.get("SHOP_LEAKS") else None

@celery.task
def work(size):
    if KEPT is not None:
        KEPT.append(bytearray(100_000))
    return len(",".join(str(number) for number in range(size)))

class Application:
    # gunicorn calls it, and celery -A app finds the Celery instance beside it.
    def __call__(self, environment, start_response):
        return wsgi(environment, start_response)

app = celery if os.environ.get("APP_IS_CELERY") else Application()
""",
    "shop/__init__.py": "",
    "shop/wsgi.py": "from app import wsgi as application\n",
    "enqueue.py": """from app import work
from celery import group
group(work.s(20_000 + number) for number in range(60))().get(timeout=60)
""",
    "app.rb": """require "sidekiq"
Sidekiq.configure_server { |config| config.redis = { url: ENV["REDIS_URL"] } }
Sidekiq.configure_client { |config| config.redis = { url: ENV["REDIS_URL"] } }
class Work
  include Sidekiq::Worker
  KEPT = []
  def perform(size)
    KEPT << "text" * 20_000 if ENV["SHOP_LEAKS"]
    Array.new(size) { |number| "text #{number}" }.join.size
    Sidekiq.redis { |redis| redis.call("INCR", "done") }
  end
end
""",
    "enqueue.rb": """require_relative "app"
wanted = Sidekiq.redis { |redis| redis.call("GET", "done") }.to_i + 60
60.times { |number| Work.perform_async(10_000 + number) }
600.times do
  exit if Sidekiq.redis { |redis| redis.call("GET", "done") }.to_i >= wanted
  sleep 0.1
end
abort "the jobs were not done"
""",
}


def write(folder: Path):
    """Lays the applications into a folder, as their servers' documents would."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        if text.startswith("#!"):
            os.chmod(path, path.stat().st_mode | stat.S_IXUSR)
