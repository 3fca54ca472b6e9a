# frozen_string_literal: true

class ReportsController < ApplicationController
  HEADER = %w[order month placed_on customer city product category quantity price_cents total_cents].freeze

  # One month, or several with ?months=; the heavy requests of this application.
  def sales
    first = params[:month].to_i
    orders = Order.in_months(first...(first + params.fetch(:months, 1).to_i))
                  .includes(:customer, line_items: :product)
    rows = orders.flat_map { |order| order.line_items.map { |line| sales_row(order, line) } }
    response.set_header("X-Rows", rows.size.to_s)
    render plain: CSV.generate { |csv| [HEADER, *rows].each { |row| csv << row } }, content_type: "text/csv"
  end

  private

  def sales_row(order, line)
    [order.id, order.month, order.placed_on, order.customer.name, order.customer.city, line.product.name,
     line.product.category, line.quantity, line.price_cents, line.total_cents]
  end
end
