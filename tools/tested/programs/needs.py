import costly

print(len(costly.KEPT))
