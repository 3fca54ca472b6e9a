# frozen_string_literal: true

class ReportsController < ApplicationController
  # One month, or several with ?months=; the heavy requests of this application.
  def sales
    first = params[:month].to_i
    report = SalesReport.new(first...(first + params.fetch(:months, 1).to_i))
    response.set_header("X-Rows", report.rows.size.to_s)
    render plain: report.to_csv, content_type: "text/csv"
  end
end
