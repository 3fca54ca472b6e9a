# frozen_string_literal: true

# All lines sold in a range of months, as CSV.
class SalesReport
  HEADER = %w[order month placed_on customer city product category quantity price_cents total_cents].freeze

  attr_reader :rows

  def initialize(months)
    orders = Order.in_months(months).includes(:customer, line_items: :product)
    @rows = orders.flat_map { |order| order.line_items.map { |line| row(order, line) } }
  end

  def to_csv
    CSV.generate { |csv| [HEADER, *rows].each { |row| csv << row } }
  end

  private

  def row(order, line)
    [order.id, order.month, order.placed_on, order.customer.name, order.customer.city, line.product.name,
     line.product.category, line.quantity, line.price_cents, line.total_cents]
  end
end
