# frozen_string_literal: true

class OrdersController < ApplicationController
  def index
    customer = Customer.find(params[:id])
    orders = customer.orders.includes(line_items: :product).order(:id)
    render json: { customer: customer.as_json, orders: orders.map { |order| order_json(order) } }
  end

  private

  def order_json(order)
    lines = order.line_items.map do |line|
      { product: line.product.as_json(only: %i[id name category]), quantity: line.quantity, total: line.total_cents }
    end
    order.as_json(except: :customer_id).merge(lines: lines, total: lines.sum { |line| line[:total] })
  end
end
