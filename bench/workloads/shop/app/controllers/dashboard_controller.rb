# frozen_string_literal: true

class DashboardController < ApplicationController
  def show
    @month = params[:month].to_i
    orders = Order.in_months(@month)
    @revenue_by_category = LineItem.joins(:order, :product).merge(Order.unscoped.where(month: @month))
                                   .group("products.category").sum("line_items.quantity * line_items.price_cents")
    @best_customers = orders.includes(:customer, :line_items).group_by(&:customer)
                            .map { |customer, list| [customer, list.sum { |o| o.line_items.sum(&:total_cents) }] }
                            .max_by(25) { |customer, total| [total, customer.id] }
    @orders = orders.last(40)
  end
end
