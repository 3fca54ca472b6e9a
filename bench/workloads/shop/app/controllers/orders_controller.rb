# frozen_string_literal: true

class OrdersController < ApplicationController
  def index
    customer = Customer.find(params[:id])
    orders = customer.orders.includes(line_items: :product).order(:id)
    render json: { customer: customer.as_json, orders: orders.map(&:summary) }
  end
end
